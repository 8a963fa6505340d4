# SPDX-License-Identifier: Apache-2.0
"""SampleTokens where it could go wrong: exact thresholds, ties, rows that are not finite, padding rows."""

from __future__ import annotations

import pytest
import torch

from build_scripts.gpu_check.ops import SamplingOptions
from build_scripts.gpu_check.runners import TritonRunner
from build_scripts.gpu_check.source_ops import SourceOps, launch
from plugins.kernels import geometry

RUN = TritonRunner()
OPS = SourceOps(RUN)


def _options(
    temperature: float = 1.0, top_p: float = 1.0, min_p: float = 0.0, top_k: int = 0, seed: int = 5
) -> SamplingOptions:
    floats = (torch.tensor([value]) for value in (temperature, top_p, min_p))
    return SamplingOptions(*floats, torch.tensor([top_k], dtype=torch.int32), torch.tensor([seed]))


def _sample(logits: torch.Tensor, options: SamplingOptions, row_ids: list[int] | None = None, first: int = 0):  # type: ignore[no-untyped-def]
    rows, vocab = logits.shape
    ids = torch.arange(vocab, dtype=torch.int32)
    positions = torch.arange(first, first + rows, dtype=torch.int32)
    return OPS.sample_tokens(logits, ids, torch.tensor(row_ids or [0] * rows, dtype=torch.int32), positions, options)


def _threshold(logits: torch.Tensor, options: SamplingOptions) -> float:
    """What sample_filter leaves, for one row."""
    vocab = logits.shape[1]
    chunks, align = geometry.sample_chunks(vocab), geometry.vocab_align(vocab)
    scan = {name: torch.zeros(chunks) for name in ("scan_max", "scan_sum")}
    scan |= {name: torch.zeros(chunks, dtype=torch.int32) for name in ("scan_id", "scan_bad")}
    ids = torch.arange(vocab, dtype=torch.int32)
    launch(RUN, "sample_scan", None, (align,), (chunks, 1, 1), logits=logits, token_ids=ids, vocab_size=vocab, **scan)
    thresholds = torch.full((1,), float("nan"))
    launch(
        RUN, "sample_filter", None, (align,), (1, 1, 1), logits=logits, row_ids=torch.zeros(1, dtype=torch.int32),
        temperature=options.temperature, top_p=options.top_p, min_p=options.min_p, top_k=options.top_k,
        scan_max=scan["scan_max"], thresholds=thresholds, vocab_size=vocab, num_rows=1,
    )  # fmt: skip
    return float(thresholds)


def _z(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    return (logits[0] - logits[0].max()) / temperature


@pytest.mark.parametrize("top_k", [1, 2, 3, 17, 100, 2047, 2048, 2049, 4999])
def test_top_k_is_exact(top_k: int) -> None:
    logits = torch.randn(1, 5000, generator=torch.Generator().manual_seed(top_k)) * 2
    kept = _z(logits, 0.7) >= _threshold(logits, _options(0.7, top_k=top_k))
    wanted = torch.zeros(5000, dtype=torch.bool)
    wanted[logits[0].topk(top_k).indices] = True
    # Different logits can round to one z: then both are kept.
    assert int(kept.sum()) - top_k <= 2 and bool((kept | ~wanted).all())


def test_top_k_tells_neighbours_apart() -> None:
    best = torch.tensor(8.0)
    values = [best]
    for _ in range(40):
        values.append(torch.nextafter(values[-1], torch.tensor(0.0)))
    logits = torch.stack(values)[torch.randperm(41, generator=torch.Generator().manual_seed(0))][None, :].contiguous()
    for top_k in (1, 2, 20, 40):
        assert int((_z(logits, 1.0) >= _threshold(logits, _options(top_k=top_k))).sum()) == top_k


def test_ties_at_the_edge_stay_in() -> None:
    logits = torch.tensor([[3.0, 1.0, 1.0, 1.0, 0.0, 2.0]])
    assert int((_z(logits, 1.0) >= _threshold(logits, _options(top_k=3))).sum()) == 5


@pytest.mark.parametrize("top_p", [1e-6, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("top_k", [0, 30])
def test_top_p_keeps_the_least_set_of_that_mass(top_p: float, top_k: int) -> None:
    logits = torch.randn(1, 4100, generator=torch.Generator().manual_seed(3)) * 3
    z = _z(logits, 1.5).double()
    kept = z >= _threshold(logits, _options(1.5, top_p=top_p, top_k=top_k))
    pool = z >= (z.topk(top_k).values[-1] if top_k else -40.0)
    share = torch.exp(z) * pool / (torch.exp(z) * pool).sum()
    assert bool((pool | ~kept).all())
    least = share[kept].min()
    assert share[kept].sum() >= top_p - 1e-5
    assert share[kept].sum() - least < top_p + 1e-5


def test_min_p_is_relative_to_the_best_token() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.0499, 0.0501, 0.1]]))
    kept = _z(logits, 1.0) >= _threshold(logits, _options(min_p=0.1))
    assert kept.tolist() == [True, True, False, True, True]


def test_tokens_below_the_floor_are_out() -> None:
    logits = torch.tensor([[0.0, -39.0, -41.0, -1000.0]])
    assert (_z(logits, 1.0) >= _threshold(logits, _options(top_k=3))).tolist() == [True, True, False, False]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_fails_alone(bad: float, temperature: float) -> None:
    logits = torch.randn(3, 3000, generator=torch.Generator().manual_seed(1))
    clean, _, _ = _sample(logits, _options(temperature))
    logits[1, 2500] = bad
    ids, logprobs, finite = _sample(logits, _options(temperature))
    assert finite.tolist() == [True, False, True]
    assert ids[[0, 2]].equal(clean[[0, 2]])
    assert 0 <= int(ids[1]) < 3000 and not bool(logprobs[[0, 2]].isnan().any())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_with_nothing_finite_still_gives_an_id(temperature: float) -> None:
    ids, logprobs, finite = _sample(torch.full((1, 100), float("nan")), _options(temperature))
    assert 0 <= int(ids[0]) < 100 and not bool(finite[0]) and bool(logprobs.isfinite()[0])


def test_rows_beyond_the_table_of_options_read_its_last_row() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    ids, _, _ = _sample(logits, _options(0.0), row_ids=[0, 1, 7])
    assert ids.tolist() == logits.argmax(1).tolist()
