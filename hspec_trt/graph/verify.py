# SPDX-License-Identifier: Apache-2.0
"""Verification: draw a token from every row of logits, and accept the drafts that equal what was drawn.

The sampler never looks at the drafts, so with one seed the text does not depend on them (losslessness). Knows nothing
of models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from hspec_trt.contract import SAMPLE_TOKENS
from hspec_trt.graph.layers import Scope
from hspec_trt.graph.logits import LogitEdits
from hspec_trt.graph.rows import PackedRows

SAMPLING_INPUTS = ("temperature", "top_p", "min_p", "top_k", "seed")
NO_TOKEN = -1


@dataclass(frozen=True)
class Verdict:
    """Outcome of one step per row; the first four are step outputs.

    Attributes:
        bonus_ids: int32 [R], the last emitted token (the next anchor); any valid id for a row that emits nothing.
        last_tokens: int64 [R], packed index of the token whose logits gave the bonus token.
        drawn_ids: int32 [K], the token drawn from each row of logits.
    """

    emitted_ids: ir.Value
    emitted_lens: ir.Value
    emitted_logprobs: ir.Value
    finite: ir.Value
    bonus_ids: ir.Value
    last_tokens: ir.Value
    drawn_ids: ir.Value


def sample(
    s: Scope,
    inputs: Mapping[str, ir.Value],
    logits: ir.Value,
    token_ids: ir.Value,
    row_ids: ir.Value,
    positions: ir.Value,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Token ids, log-probabilities and finiteness of logits float32 [K, V]; shapes as in the op's contract."""
    options = (inputs[name] for name in SAMPLING_INPUTS)
    ids, logprobs, finite = s.custom(SAMPLE_TOKENS, logits, token_ids, row_ids, positions, *options)
    return ids, logprobs, finite


def verify(
    s: Scope,
    inputs: Mapping[str, ir.Value],
    rows: PackedRows,
    logits: ir.Value,
    num_drafts: int,
    edits: LogitEdits | None = None,
    *,
    branches: bool = False,
) -> Verdict:
    """Accept drafts and find the bonus token of each row.

    Args:
        logits: float32 [K, V].
        num_drafts: G, the most drafts a row carries.
        edits: what is done to logits before a token is drawn from them, in engines that have it.
        branches: leave the edits out, by an ``If``, of steps that have none.
    """
    g = s.builder
    token_ids = s.weight("target.token_ids")

    def draw(scope: Scope, values: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
        return sample(scope, inputs, values, token_ids, rows.verify_row_ids, rows.verify_positions)

    sampled = draw(s, logits) if edits is None else edits.sampled(s, logits, draw, branches=branches)
    starts, ends = _bounds(s, inputs["cu_verify_lens"])
    lens = g.op("Sub", ends, starts)  # int64 [R, 1]
    slots = g.i64([list(range(num_drafts + 1))])
    cells = g.op("Min", g.op("Add", starts, slots), _last(s, inputs["verify_rows"]))  # [R, G + 1]
    drawn, logprobs, is_finite = (g.op("Gather", part, cells) for part in sampled)
    run = g.op("Gather", inputs["input_ids"], g.op("Gather", inputs["verify_rows"], cells))

    used = g.op("Less", slots, lens)
    accepted = _accepted(s, drawn, run, used, num_drafts)  # int64 [R, 1]
    emits = g.op("Greater", lens, g.i64(0))
    emitted = g.op("And", g.op("LessOrEqual", slots, accepted), emits)
    good = g.op("Or", is_finite, g.op("Not", used))
    num_emitted = g.op("Where", emits, g.op("Add", accepted, g.i64(1)), g.i64(0))
    last_cell = g.op("Min", g.op("Add", starts, accepted), _last(s, inputs["verify_rows"]))
    last_token = g.cast(g.op("Gather", inputs["verify_rows"], last_cell), ir.DataType.INT64)
    squeeze = g.i64([1])
    return Verdict(
        emitted_ids=g.op("Where", emitted, drawn, g.i32(NO_TOKEN)),
        emitted_lens=g.cast(g.op("Squeeze", num_emitted, squeeze), ir.DataType.INT32),
        emitted_logprobs=g.op("Where", emitted, logprobs, g.f32(0.0)),
        finite=_all_true(s, good),
        bonus_ids=g.op("Squeeze", g.op("GatherElements", drawn, accepted, axis=1), squeeze),
        last_tokens=g.op("Squeeze", last_token, squeeze),
        drawn_ids=sampled[0],
    )


def _bounds(s: Scope, cu_lens: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Start and end of each row, int64 [R, 1]."""
    g = s.builder
    wide = g.unsqueeze(g.cast(cu_lens, ir.DataType.INT64), 1)
    return (
        g.op("Slice", wide, g.i64([0]), g.i64([-1]), g.i64([0])),
        g.op("Slice", wide, g.i64([1]), g.i64([2**31 - 1]), g.i64([0])),
    )


def _last(s: Scope, packed: ir.Value) -> ir.Value:
    return s.builder.op("Sub", s.builder.dim(packed, 0), s.builder.i64([1]))


def _accepted(s: Scope, drawn: ir.Value, run: ir.Value, used: ir.Value, num_drafts: int) -> ir.Value:
    """int64 [R, 1]: how many drafts in a row equal the token drawn where they stand."""
    g = s.builder
    if num_drafts == 0:
        return g.op("Mul", g.cast(g.op("Gather", used, g.i64([0]), axis=1), ir.DataType.INT64), g.i64(0))
    before = g.slice(drawn, 0, num_drafts, 1)  # drawn where draft i = 1 .. G should stand
    same = g.op("Equal", before, g.slice(run, 1, num_drafts + 1, 1))
    right = g.op("And", same, g.slice(used, 1, num_drafts + 1, 1))
    wrong_so_far = g.op("CumSum", g.cast(g.op("Not", right), ir.DataType.INT32), g.i64(1))
    return g.reduce("ReduceSum", g.cast(g.op("Equal", wrong_so_far, g.i32(0)), ir.DataType.INT64), 1)


def _all_true(s: Scope, flags: ir.Value) -> ir.Value:
    g = s.builder
    return g.cast(g.reduce("ReduceMin", g.cast(flags, ir.DataType.INT32), 1, keepdims=False), ir.DataType.BOOL)
