# SPDX-License-Identifier: Apache-2.0
"""One check per op: run the kernels on a case, compare with float64, and look for writes where none belong.

The bound is that of `tests/support/tolerance.py` (rule E1): twice the error of a plain evaluation in the engine's own
type, plus two rounding steps. It knows neither which device runs nor which cases are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from build_scripts.gpu_check import cases, reference
from build_scripts.gpu_check.ops import Ops

ROUNDING_STEP = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
SCORE_BOUND = 1e-4
"""Two tokens whose scores differ by less may be drawn for each other: scores are float32 of magnitude up to 40."""


@dataclass(frozen=True)
class Outcome:
    """Result of one check; `error` beyond `allowed`, or a `fault`, fails it."""

    name: str
    error: float
    allowed: float
    fault: str = ""

    @property
    def passed(self) -> bool:
        """Whether the kernel did as it should."""
        return not self.fault and self.error <= self.allowed


def _largest(difference: torch.Tensor) -> float:
    return float("inf") if difference.isnan().any() else float(difference.abs().max()) if difference.numel() else 0.0


def _rule_e1(name: str, got: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor, fault: str = "") -> Outcome:
    theirs = _largest(plain.double() - exact)
    scale = float(exact.abs().max()) if exact.numel() else 0.0
    allowed = 2.0 * theirs + 2.0 * ROUNDING_STEP[got.dtype] * scale
    return Outcome(name, _largest(got.double() - exact), allowed, fault)


def _appended(inputs: cases.PagedInputs) -> torch.Tensor:
    """The pages as they should be afterwards, but for page 0."""
    pages, page_size = inputs.kv_pages.clone(), inputs.kv_pages.shape[3]
    step = inputs.step
    real = step.token_rows < step.rows
    rows, positions = step.token_rows[real].long(), step.token_positions[real].long()
    page, slot = step.page_table[rows, positions // page_size].long(), positions % page_size
    pages[page, 0, :, slot] = inputs.key[real]
    pages[page, 1, :, slot] = inputs.value[real]
    return pages


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def check_paged(ops: Ops, case: cases.PagedCase, place: cases.Place) -> Outcome:
    """PagedAttention: output, appended pages, and every other page untouched to the bit."""
    inputs = cases.paged_inputs(case, place)
    wanted = _appended(inputs)
    pages = inputs.kv_pages.clone()
    got = ops.paged_attention(
        case.shape, inputs.step, inputs.query, inputs.key, inputs.value, pages,
        verify_width=case.verify_width, splits=case.splits,
    )  # fmt: skip
    fault = "" if _same_bits(pages[1:], wanted[1:]) else "pages differ from the appended ones"
    exact = reference.paged_attention(case.shape, inputs.step, inputs.query, wanted, torch.float64)
    plain = reference.paged_attention(case.shape, inputs.step, inputs.query, wanted, place.dtype)
    return _rule_e1(f"paged_attention {case.name}", got, plain, exact, fault)


def check_append(ops: Ops, case: cases.PagedCase, place: cases.Place) -> Outcome:
    """AppendKv: the pages equal those with K and V copied one by one, to the bit; the output is nothing else."""
    inputs = cases.paged_inputs(case, place)
    pages = inputs.kv_pages.clone()
    ops.append_kv(case.shape, inputs.step, inputs.key, inputs.value, pages)
    fault = "" if _same_bits(pages[1:], _appended(inputs)[1:]) else "pages differ from the appended ones"
    return Outcome(f"append_kv {case.name}", 0.0, 0.0, fault)


def check_shared(ops: Ops, case: cases.SharedCase, place: cases.Place) -> Outcome:
    """SharedKvAttention: output, and nothing written to the pages."""
    inputs = cases.shared_inputs(case, place)
    pages = inputs.kv_pages.clone()
    tensors = (inputs.query, inputs.key, inputs.value, pages, inputs.page_table, inputs.prefix_lens)
    causal, no_context = case.causal, case.no_context
    got = ops.shared_kv_attention(case.shape, *tensors, causal=causal, no_context=no_context, splits=case.splits)
    fault = "" if _same_bits(pages, inputs.kv_pages) else "pages were written"
    exact, plain = (
        reference.shared_kv_attention(case.shape, *tensors, causal=causal, no_context=no_context, dtype=dtype)
        for dtype in (torch.float64, place.dtype)
    )
    return _rule_e1(f"shared_kv_attention {case.name}", got, plain, exact, fault)


def check_scan(ops: Ops, case: cases.ScanCase, place: cases.Place) -> Outcome:
    """Mamba2BlockScan: output. The plain version is float32 rounded to the output's type, since the op computes so."""
    inputs = cases.scan_inputs(case, place)
    tensors = (inputs.xbc, inputs.dt, inputs.weights, inputs.state)
    got = ops.mamba2_block_scan(case.shape, *tensors)
    exact = reference.mamba2_block_scan(case.shape, *tensors, torch.float64)
    plain = reference.mamba2_block_scan(case.shape, *tensors, torch.float32).to(place.dtype)
    return _rule_e1(f"mamba2_block_scan {case.name}", got, plain, exact)


def _drawn_fault(scores: torch.Tensor, column: int, *, exact: bool) -> str:
    best = float(scores.max())
    if exact:
        lowest = int((scores == best).nonzero()[0])
        return "" if column == lowest else f"column {column} was drawn, the lowest of the best is {lowest}"
    behind = best - float(scores[column])
    return "" if behind <= SCORE_BOUND else f"column {column} was drawn, {behind:.3g} behind the best"


def check_sample(ops: Ops, case: cases.SampleCase, place: cases.Place) -> Outcome:
    """SampleTokens: the drawn token is the best one (to rounding; exactly for greedy rows), its log-probability too."""
    inputs = cases.sample_inputs(case, place)
    ids, logprobs, finite = ops.sample_tokens(
        inputs.logits, inputs.token_ids, inputs.row_ids, inputs.positions, inputs.options
    )
    faults = [] if bool(finite.all()) else ["a finite row was called not finite"]
    raw = torch.log_softmax(inputs.logits.double(), dim=-1)
    error = 0.0
    for k, token in enumerate(ids.tolist()):
        row = int(inputs.row_ids[k])
        columns = (inputs.token_ids == token).nonzero()
        if len(columns) != 1:
            faults.append(f"row {k}: id {token} is not in token_ids")
            continue
        column = int(columns[0])
        position = int(inputs.positions[k])
        scores = reference.sample_scores(inputs.logits[k], inputs.token_ids, row, position, inputs.options)
        fault = _drawn_fault(scores, column, exact=float(inputs.options.temperature[row]) == 0)
        faults += [f"row {k}: {fault}"] if fault else []
        error = max(error, _largest(logprobs[k].double() - raw[k, column]))
    allowed = 8.0 * ROUNDING_STEP[torch.float32] * max(1.0, float(raw.abs().max()))
    return Outcome(f"sample_tokens {case.name}", error, allowed, "; ".join(faults))
