# SPDX-License-Identifier: Apache-2.0
"""Function body of ``PagedAttention``: append K and V to the pages, then attend over each row's pages.

Everything but the arithmetic on query, key, value and pages depends only on step-wide inputs and on attributes, so a
runtime that inlines the function computes the index work once for all layers.
"""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.contract import PAGED_ATTENTION
from hspec_trt.graph.builder import Builder
from hspec_trt.graph.functions.common import (
    OpFunction,
    gather_pages,
    grouped_heads,
    masked_softmax,
    num_paged_keys,
    paged_view,
    scaled_query,
)


def paged_attention() -> ir.Function:
    """The op as standard nodes; shapes as in `hspec_trt.contract.PAGED_ATTENTION`."""
    f = OpFunction(PAGED_ATTENTION)
    g, pages = f.builder, appended_pages(f)
    heads, kv_heads, head_dim = f.dim("num_heads"), f.dim("num_kv_heads"), f.dim("head_dim")
    group = grouped_heads(g, f["num_heads"], kv_heads)
    num_rows, row_len = g.dim(f["query_slots"], 0), g.dim(f["query_slots"], 1)
    grid = g.op("Gather", scaled_query(g, f["query"], f["scale"]), f["query_slots"])  # [R, T, heads, d]
    grid = g.reshape(grid, num_rows, row_len, kv_heads, group, head_dim)
    grid = g.op("Transpose", grid, perm=[0, 2, 3, 1, 4])
    grid = g.reshape(grid, num_rows, kv_heads, -1, head_dim)  # [R, kv_heads, group * T, d]

    view = paged_view(g, pages, f["page_size"], head_dim)
    keys = gather_pages(g, view, f["page_table"], f["num_kv_heads"], f["page_size"], head_dim, part=0)
    values = gather_pages(g, view, f["page_table"], f["num_kv_heads"], f["page_size"], head_dim, part=1)
    num_keys = num_paged_keys(g, f["page_table"], f["page_size"])
    scores = g.op("MatMul", grid, g.op("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = g.reshape(scores, num_rows, kv_heads, group, row_len, -1)
    weights = masked_softmax(g, scores, _mask(f, num_keys))
    mixed = g.op("MatMul", g.reshape(weights, num_rows, kv_heads, -1, num_keys), values)

    mixed = g.reshape(mixed, num_rows, kv_heads, group, row_len, head_dim)
    mixed = g.reshape(g.op("Transpose", mixed, perm=[0, 3, 1, 2, 4]), -1, heads, head_dim)  # [R * T, heads, d]
    return f.finish(g.op("Gather", mixed, _grid_index(f)), pages)


def appended_pages(f: OpFunction) -> ir.Value:
    """Pages with this step's K and V written; padding tokens write the null page."""
    g = f.builder
    update = g.op("Concat", g.unsqueeze(f["key"], 1), g.unsqueeze(f["value"], 1), axis=1)  # [N, 2, kv_heads, d]
    return g.op("ScatterND", f["kv_pages"], _write_index(f), update)


def _write_index(f: OpFunction) -> ir.Value:
    """int64 [N, 2, kv_heads, 4]: page, K or V, head, place in the page."""
    g = f.builder
    rows = g.cast(f["token_rows"], ir.DataType.INT64)
    positions = g.cast(f["token_positions"], ir.DataType.INT64)
    num_rows = g.dim(f["page_table"], 0)
    column = g.op("Div", positions, f["page_size"])
    cell = g.op("Concat", *(g.unsqueeze(part, 1) for part in (g.op("Min", rows, _last(g, num_rows)), column)), axis=1)
    page = g.cast(g.op("GatherND", f["page_table"], cell), ir.DataType.INT64)
    page = g.op("Where", g.op("Less", rows, num_rows), page, g.i64(0))
    place = g.op("Mod", positions, f["page_size"])
    shape = g.shape(g.dim(f["token_rows"], 0), 2, f.dim("num_kv_heads"), 1)
    parts = (
        g.unsqueeze(page, 1, 2, 3),
        g.i64([[[[0]], [[1]]]]),
        g.unsqueeze(g.iota(f.dim("num_kv_heads")), 0, 1, 3),
        g.unsqueeze(place, 1, 2, 3),
    )
    return g.op("Concat", *(g.op("Expand", part, shape) for part in parts), axis=3)


def _last(g: Builder, extent: ir.Value) -> ir.Value:
    return g.op("Sub", extent, g.i64([1]))


def _mask(f: OpFunction, num_keys: ir.Value) -> ir.Value:
    """bool [R, 1, 1, T, S]: key position <= query position, and inside the window."""
    g = f.builder
    positions = g.op("Gather", g.cast(f["token_positions"], ir.DataType.INT64), f["query_slots"])
    age = g.op("Sub", g.unsqueeze(positions, 2), g.unsqueeze(g.iota(num_keys), 0, 1))  # [R, T, S]
    # (age + 1 - W) * W <= 0 is age < W for a window, and always true for W = 0.
    inside = g.op("Mul", g.op("Sub", g.op("Add", age, g.i64(1)), f["window"]), f["window"])
    visible = g.op("And", g.op("GreaterOrEqual", age, g.i64(0)), g.op("LessOrEqual", inside, g.i64(0)))
    return g.unsqueeze(visible, 1, 2)


def _grid_index(f: OpFunction) -> ir.Value:
    """int64 [N]: place of each packed token in the grid [R * T]."""
    g = f.builder
    num_rows, row_len = g.dim(f["query_slots"], 0), g.dim(f["query_slots"], 1)
    rows = g.op("Min", g.cast(f["token_rows"], ir.DataType.INT64), _last(g, num_rows))
    start = g.cast(g.op("Gather", f["cu_query_lens"], rows), ir.DataType.INT64)
    offset = g.op("Sub", g.iota(g.dim(f["token_rows"], 0)), start)
    # A padding token lies beyond its row's tokens: any valid place will do.
    offset = g.op("Min", offset, _last(g, row_len))
    return g.op("Add", g.op("Mul", rows, row_len), offset)
