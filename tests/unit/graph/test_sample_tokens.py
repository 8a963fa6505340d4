# SPDX-License-Identifier: Apache-2.0
"""SampleTokens as a function, in both forms: noise, filters, ties, non-finite rows, distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import pytest
from scipy import stats

from hspec_trt.contract import NOISE_UNIT
from hspec_trt.graph.builder import Builder
from hspec_trt.graph.functions import sample_tokens
from hspec_trt.graph.functions.filters import BISECTION, BY_QUARTERS, Filters, Search
from hspec_trt.graph.functions.noise import NOISE_SPAN, gumbel_noise, row_keys
from tests.support import sampling_reference as reference
from tests.support.op_body import Arrays, evaluate, run_op

FORMS = pytest.mark.parametrize("branches", [False, True], ids=["straight", "branching"])
FILTER_SETS = {
    "none": {},
    "top_k": {"top_k": 5},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.1},
    "all": {"top_k": 8, "top_p": 0.9, "min_p": 0.05},
}
SEEDS = (0, 1, 65535, 65536, 2**31, 2**40 + 12345, 2**63 - 1)
SEARCHES = pytest.mark.parametrize("search", [BISECTION, BY_QUARTERS], ids=["bisection", "quarters"])
EDGE = 1e-4
"""Filters find their threshold to this, in units of z; the search's own resolution is 40 / 2**24."""


def draw(
    logits: np.ndarray,
    *,
    branches: bool,
    positions: np.ndarray | None = None,
    token_ids: np.ndarray | None = None,
    **options: float | int | Sequence[float] | Sequence[int],
) -> Arrays:
    """One row of options per row of logits."""
    rows, width = logits.shape
    kinds = {
        "temperature": (np.float32, 0.0),
        "top_p": (np.float32, 1.0),
        "min_p": (np.float32, 0.0),
        "top_k": (np.int32, 0),
        "seed": (np.int64, 0),
    }
    inputs = {
        "logits": logits.astype(np.float32),
        "token_ids": np.arange(width, dtype=np.int32) if token_ids is None else token_ids,
        "row_ids": np.arange(rows, dtype=np.int32),
        "positions": np.zeros(rows, np.int32) if positions is None else positions.astype(np.int32),
    }
    for name, (dtype, default) in kinds.items():
        inputs[name] = np.broadcast_to(np.asarray(options.get(name, default), dtype), (rows,)).copy()
    return run_op("SampleTokens", inputs, branches=branches)


def test_noise_is_that_of_the_contract() -> None:
    token_ids = np.array([0, 1, 2, 77, 49151, 151935, 262143], np.int32)
    positions = np.array([0, 1, 17, 4095, 131071, 2**20, 5], np.int32)

    def record(g: Builder, values: Mapping[str, ir.Value]) -> list[ir.Value]:
        keys = row_keys(g, values["seed"], values["position"])
        return [gumbel_noise(g, keys, values["token_ids"], precise=precise) for precise in (True, False)]

    exact, single = evaluate(
        record, seed=np.array(SEEDS, np.int64)[:, None], position=positions[:, None], token_ids=token_ids
    )
    for row, (seed, position) in enumerate(zip(SEEDS, positions, strict=True)):
        want = reference.gumbel(seed, int(position), token_ids)
        assert (exact[row] == want).all()
        # Single precision keeps the generator's 23 bits: u is recovered exactly up to the rounding of two logarithms.
        assert np.allclose(single[row], want, rtol=0, atol=4 * NOISE_UNIT * max(1.0, float(np.abs(want).max())))
        u = np.exp(-np.exp(-exact[row].astype(np.float64)))
        assert np.allclose(u, [reference.uniform(seed, int(position), int(token)) for token in token_ids], atol=1e-6)


def test_noise_span_covers_the_extremes() -> None:
    highest, lowest = (-np.log(-np.log(u)) for u in (1 - NOISE_UNIT / 2, NOISE_UNIT / 2))
    assert highest - lowest < NOISE_SPAN < highest - lowest + 0.1


@FORMS
def test_the_draw_is_the_argmax_of_score_plus_noise(branches: bool) -> None:
    rng = np.random.default_rng(0)
    token_ids = np.sort(rng.choice(250_000, 200, replace=False)).astype(np.int32)
    logits = rng.normal(size=(len(SEEDS) * 8, 200)).astype(np.float32)
    seeds, positions = np.repeat(SEEDS, 8), np.arange(len(logits))
    out = draw(logits, branches=branches, positions=positions, token_ids=token_ids, temperature=0.7, seed=seeds)
    for row, values in enumerate(logits):
        noise = reference.gumbel(int(seeds[row]), int(positions[row]), token_ids)
        best = int(np.argmax((values - values.max()) / np.float32(0.7) + noise))
        assert out["ids"][row] == token_ids[best]
        raw = values - values.max()
        assert out["logprobs"][row] == pytest.approx(raw[best] - np.log(np.exp(raw).sum()), abs=1e-5)
    assert out["finite"].all()


def test_both_forms_draw_the_same() -> None:
    rng = np.random.default_rng(1)
    rows = 64
    logits = rng.normal(scale=rng.choice([0.1, 1.0, 5.0, 15.0], size=(rows, 1)), size=(rows, 512))
    options = {
        "temperature": rng.choice([0.0, 0.3, 1.0, 2.5], rows),
        "top_k": rng.choice([0, 1, 7, 600], rows),
        "top_p": rng.choice([1.0, 0.1, 0.95], rows),
        "min_p": rng.choice([0.0, 0.2], rows),
        "seed": rng.integers(0, 2**62, rows),
    }
    straight, branching = (draw(logits, branches=form, positions=np.arange(rows), **options) for form in (False, True))
    assert (straight["ids"] == branching["ids"]).all()
    # One takes the logarithm of a sum between 1 and 512 in float64: at most the last bit of a number below 8 differs.
    np.testing.assert_allclose(straight["logprobs"], branching["logprobs"], rtol=0, atol=np.spacing(np.float32(7.9)))
    greedy = options["temperature"] == 0
    assert (straight["ids"][greedy] == logits.astype(np.float32).argmax(1)[greedy]).all()


@FORMS
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_does_not_depend_on_its_company(branches: bool, temperature: float) -> None:
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(9, 160)).astype(np.float32)
    row = logits[0]
    alone = draw(row[None], branches=branches, temperature=temperature, seed=5, positions=np.array([3]))
    for place in range(9):
        company = np.roll(logits, place, axis=0)
        options = {
            "temperature": rng.choice([0.0, 0.5, 2.0], 9),
            "top_k": rng.choice([0, 3], 9),
            "seed": rng.integers(0, 100, 9),
        }
        options["temperature"][place], options["top_k"][place], options["seed"][place] = temperature, 0, 5
        out = draw(company, branches=branches, positions=np.full(9, 3), **options)
        assert out["ids"][place] == alone["ids"][0]
        assert out["logprobs"][place] == alone["logprobs"][0]


@FORMS
def test_equal_logits_give_the_lowest_id(branches: bool) -> None:
    logits = np.zeros((3, 64), np.float32)
    logits[1, [5, 40]] = 2.0
    logits[2, [40, 41]] = [1.0, np.nextafter(np.float32(1.0), np.float32(2.0))]
    assert draw(logits, branches=branches)["ids"].tolist() == [0, 5, 41]


@FORMS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_non_finite_row_is_reported_and_harms_no_other(branches: bool, bad: float, temperature: float) -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(4, 96)).astype(np.float32)
    options = {"temperature": temperature, "top_k": 20, "top_p": 0.9, "seed": 1}
    sound = draw(logits, branches=branches, **options)
    logits[1, 17] = bad
    logits[3] = bad
    out = draw(logits, branches=branches, **options)
    assert out["finite"].tolist() == [True, False, True, False]
    assert ((out["ids"] >= 0) & (out["ids"] < 96)).all()
    assert out["ids"][[0, 2]].tolist() == sound["ids"][[0, 2]].tolist()


@SEARCHES
@pytest.mark.parametrize("branches", [False, True])
@pytest.mark.parametrize("name", [name for name in FILTER_SETS if name != "none"])
def test_thresholds_equal_sorting(name: str, search: Search, branches: bool) -> None:
    rng = np.random.default_rng(4)
    z = rng.normal(scale=3.0, size=(40, 300)).astype(np.float32)
    z -= z.max(axis=1, keepdims=True)
    options = {"top_k": 0, "top_p": 1.0, "min_p": 0.0} | FILTER_SETS[name]

    def record(g: Builder, values: Mapping[str, ir.Value]) -> list[ir.Value]:
        filters = Filters(values["top_k"], values["top_p"], values["min_p"])
        return [filters.threshold(g, values["z"], search, branches=branches)]

    columns = {
        key: np.full((len(z), 1), value, np.int32 if key == "top_k" else np.float32) for key, value in options.items()
    }
    (threshold,) = evaluate(record, z=z, **columns)
    for row, values in enumerate(z):
        want = reference.allowed(values, **options)
        clear = np.abs(values - values[want].min()) > EDGE
        assert ((values >= threshold[row])[clear] == want[clear]).all()
        assert (values >= threshold[row])[want].all(), "nothing that belongs to the set may be cut"


@FORMS
def test_filters_of_one_row_leave_others_alone(branches: bool) -> None:
    logits = np.tile(np.linspace(0, 3, 48, dtype=np.float32), (4, 1))
    many = {"temperature": 5.0, "top_k": [1, 0, 0, 0], "top_p": [1.0, 1e-6, 1.0, 1.0], "min_p": [0, 0, 1.0, 0]}
    ids = [
        draw(logits, branches=branches, positions=np.full(4, position), seed=9, **many)["ids"] for position in range(60)
    ]
    seen = [set(column) for column in np.array(ids).T.tolist()]
    assert seen[:3] == [{47}, {47}, {47}]
    assert len(seen[3]) > 20


@FORMS
@pytest.mark.parametrize("name", FILTER_SETS)
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_draws_have_the_distribution(name: str, temperature: float, branches: bool) -> None:
    rng = np.random.default_rng(6)
    logits = rng.normal(scale=1.5, size=16).astype(np.float32)
    draws, batch = 20_000, 2_000
    counts = np.zeros(16)
    for start in range(0, draws, batch):
        positions = np.arange(start, start + batch)
        rows = np.tile(logits, (batch, 1))
        out = draw(rows, branches=branches, positions=positions, temperature=temperature, seed=123, **FILTER_SETS[name])
        counts += np.bincount(out["ids"], minlength=16)
    expected = draws * reference.filtered_softmax(logits, temperature, **FILTER_SETS[name])
    possible = expected > 0
    assert counts[~possible].sum() == 0
    rare = possible & (expected < 5)
    observed, wanted = counts[possible & ~rare], expected[possible & ~rare]
    if rare.any():
        observed, wanted = np.append(observed, counts[rare].sum()), np.append(wanted, expected[rare].sum())
    assert stats.chisquare(observed, wanted).pvalue > 1e-4


def test_two_positions_are_independent() -> None:
    logits = np.log([0.1, 0.6, 0.3]).astype(np.float32)
    probabilities = np.array([0.1, 0.6, 0.3])
    seeds = np.arange(20_000)
    rows = np.tile(logits, (len(seeds), 1))
    first, second = (
        draw(rows, branches=True, positions=np.full(len(seeds), p), temperature=1.0, seed=seeds)["ids"] for p in (7, 8)
    )
    joint = np.bincount(first * 3 + second, minlength=9)
    assert stats.chisquare(joint, len(seeds) * np.outer(probabilities, probabilities).ravel()).pvalue > 1e-4


def test_only_the_branching_form_has_control_flow() -> None:
    kinds = {form: {node.op_type for node in sample_tokens(branches=form).all_nodes()} for form in (False, True)}
    assert not kinds[False] & {"If", "Loop", "Scan"}
    assert {"If", "Loop"} <= kinds[True]
