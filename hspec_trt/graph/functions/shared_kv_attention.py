# SPDX-License-Identifier: Apache-2.0
"""Function body of ``SharedKvAttention``: a draft block attends over the target's pages and over itself.

``AnchorWindowAttention`` is the same but for the edge of the window, which then lies at one place for the whole block.
"""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.contract import ANCHOR_WINDOW_ATTENTION, SHARED_KV_ATTENTION, OpSpec
from hspec_trt.graph.functions.common import (
    MASKED,
    OpFunction,
    gather_pages,
    grouped_heads,
    num_paged_keys,
    paged_view,
    scaled_query,
)


def shared_kv_attention() -> ir.Function:
    """The op as standard nodes; shapes as in `hspec_trt.contract.SHARED_KV_ATTENTION`."""
    return _attention(SHARED_KV_ATTENTION)


def anchor_window_attention() -> ir.Function:
    """The op with the window of training; shapes as in `hspec_trt.contract.SHARED_KV_ATTENTION`."""
    return _attention(ANCHOR_WINDOW_ATTENTION)


def _attention(spec: OpSpec) -> ir.Function:
    f = OpFunction(spec)
    g = f.builder
    heads, kv_heads, head_dim = f.dim("num_heads"), f.dim("num_kv_heads"), f.dim("head_dim")
    group = grouped_heads(g, f["num_heads"], kv_heads)
    rows, block = g.dim(f["query"], 0), g.dim(f["query"], 1)
    lines = g.op("Mul", group, block)
    grid = g.reshape(scaled_query(g, f["query"], f["scale"]), rows, block, kv_heads, group, head_dim)
    grid = g.op("Transpose", grid, perm=[0, 2, 3, 1, 4])
    grid = g.reshape(grid, rows, kv_heads, lines, head_dim)

    view = paged_view(g, f["kv_pages"], f["page_size"], head_dim)
    page = (f["page_table"], f["num_kv_heads"], f["page_size"], head_dim)
    keys, values = (gather_pages(g, view, *page, part=part) for part in (0, 1))
    own_keys = g.op("Transpose", f["key"], perm=[0, 2, 3, 1])  # [D, kv_heads, d, B]
    own_values = g.op("Transpose", f["value"], perm=[0, 2, 1, 3])  # [D, kv_heads, B, d]
    context = g.op("MatMul", grid, g.op("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = g.op("Concat", context, g.op("MatMul", grid, own_keys), axis=3)

    num_keys = num_paged_keys(g, f["page_table"], f["page_size"])
    total = g.op("Add", num_keys, block)
    # Two products over the two kinds of keys: joining the keys themselves would copy the context.
    weights = _softmax(f, g.reshape(scores, rows, kv_heads, group, block, total), num_keys)
    weights = g.reshape(weights, rows, kv_heads, lines, total)
    on_context = g.op("Slice", weights, g.i64([0]), num_keys, g.i64([3]))
    on_block = g.op("Slice", weights, num_keys, total, g.i64([3]))
    mixed = g.op("Add", g.op("MatMul", on_context, values), g.op("MatMul", on_block, own_values))
    mixed = g.reshape(mixed, rows, kv_heads, group, block, head_dim)
    mixed = g.op("Transpose", mixed, perm=[0, 3, 1, 2, 4])
    return f.finish(g.reshape(mixed, rows, block, heads, head_dim))


def _softmax(f: OpFunction, scores: ir.Value, num_keys: ir.Value) -> ir.Value:
    g = f.builder
    visible = g.op("Concat", _context_mask(f, num_keys), _block_mask(f), axis=2)  # [D, B, S + B]
    bias = g.unsqueeze(g.op("Where", visible, g.f32(0.0), g.f32(MASKED)), 1, 2)
    weights = g.op("Softmax", g.op("Add", g.cast(scores, ir.DataType.FLOAT), bias), axis=-1)
    return g.op("CastLike", weights, scores)


def _slot_positions(f: OpFunction) -> tuple[ir.Value, ir.Value]:
    """Prefix length p, int64 [D, 1, 1], and position p + k of each block slot, int64 [D, B]."""
    g = f.builder
    prefix = g.unsqueeze(g.cast(f["prefix_lens"], ir.DataType.INT64), 1)
    slots = g.op("Add", prefix, g.unsqueeze(g.iota(g.dim(f["query"], 1)), 0))
    return g.unsqueeze(prefix, 2), slots


def _context_mask(f: OpFunction, num_keys: ir.Value) -> ir.Value:
    """bool [D, B, S]: t < p, and t > p + k - W; nothing at all with no_context."""
    g = f.builder
    prefix, slots = _slot_positions(f)
    keys = g.unsqueeze(g.iota(num_keys), 0, 1)
    readable = g.op("Sub", prefix, g.op("Mul", prefix, f["no_context"]))
    if _one_edge(f):
        # t >= p - W, for every slot: as if each sat one before the anchor.
        slots = g.op("Add", g.op("Mul", slots, g.i64(0)), g.op("Sub", g.op("Squeeze", prefix, g.i64([2])), g.i64(1)))
    age = g.op("Sub", g.unsqueeze(slots, 2), keys)
    return g.op("And", g.op("Less", keys, readable), _in_window(f, age))


def _block_mask(f: OpFunction) -> ir.Value:
    """bool [D, B, B]: the whole block, or slots j <= k; and j > k - W."""
    g = f.builder
    _, slots = _slot_positions(f)
    age = g.op("Sub", g.unsqueeze(slots, 2), g.unsqueeze(slots, 1))
    ahead = g.op("GreaterOrEqual", g.op("Mul", age, f["causal"]), g.i64(0))
    return ahead if _one_edge(f) else g.op("And", ahead, _in_window(f, age))


def _one_edge(f: OpFunction) -> bool:
    return f.spec.name == ANCHOR_WINDOW_ATTENTION.name


def _in_window(f: OpFunction, age: ir.Value) -> ir.Value:
    g = f.builder
    # (age + 1 - W) * W <= 0 is age < W for a window, and always true for W = 0.
    beyond = g.op("Mul", g.op("Sub", g.op("Add", age, g.i64(1)), f["window"]), f["window"])
    return g.op("LessOrEqual", beyond, g.i64(0))
