# SPDX-License-Identifier: Apache-2.0
"""Packed rows: which row and position each packed token and each row of logits has. Computed once a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from hspec_trt.graph.builder import Builder


@dataclass(frozen=True)
class PackedRows:
    """Index tensors of one step.

    Attributes:
        token_rows: int32 [N], row of each packed token; R for padding.
        token_positions: int32 [N], position of the token in its sequence; 0 for padding.
        verify_row_ids: int32 [K], row of each row of logits; the last row for padding.
        verify_positions: int32 [K], position of the token that is drawn from the row of logits.
    """

    token_rows: ir.Value
    token_positions: ir.Value
    verify_row_ids: ir.Value
    verify_positions: ir.Value


def packed_rows(g: Builder, inputs: Mapping[str, ir.Value]) -> PackedRows:
    """Derive the index tensors from the step's inputs (`hspec_trt.contract.STEP_INPUTS`)."""
    last_row = g.cast(g.op("Sub", g.dim(inputs["context_lens"], 0), g.i64([1])), ir.DataType.INT32)
    num_tokens = g.dim(inputs["input_ids"], 0)
    token_rows = _rows_of(g, inputs["cu_query_lens"], num_tokens)
    row = g.op("Min", token_rows, last_row)
    start, context = (g.op("Gather", inputs[name], row) for name in ("cu_query_lens", "context_lens"))
    index = g.cast(g.iota(num_tokens), ir.DataType.INT32)
    position = g.op("Add", context, g.op("Sub", index, start))
    position = g.op("Where", g.op("LessOrEqual", token_rows, last_row), position, g.i32(0))
    verify_row_ids = g.op("Min", _rows_of(g, inputs["cu_verify_lens"], g.dim(inputs["verify_rows"], 0)), last_row)
    drawn = g.op("Add", g.op("Gather", position, inputs["verify_rows"]), g.i32(1))
    return PackedRows(token_rows, position, verify_row_ids, drawn)


def _rows_of(g: Builder, cu_lens: ir.Value, count: ir.Value) -> ir.Value:
    """int32 [count]: the row in which each index lies, i.e. how many rows end at or before it."""
    ends = g.op("Slice", cu_lens, g.i64([1]), g.i64([2**31 - 1]), g.i64([0]))
    index = g.cast(g.iota(count), ir.DataType.INT32)
    ended = g.op("GreaterOrEqual", g.unsqueeze(index, 1), g.unsqueeze(ends, 0))
    return g.reduce("ReduceSum", g.cast(ended, ir.DataType.INT32), 1, keepdims=False)
