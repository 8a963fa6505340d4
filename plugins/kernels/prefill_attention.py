# SPDX-License-Identifier: Apache-2.0
"""PagedAttention for long rows: prompt chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from .attention_core import attend_pages, store_result


@triton.jit
def prefill_attention(
    query, kv_pages, cu_query_lens, context_lens, page_table, output, scale, window, max_pages, min_query,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, PAGE_SIZE: tl.constexpr,
    TILE: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Causal attention of TILE // GROUP query tokens of a row over all its keys in range.

    Geometry: grid (cdiv(T, TILE // GROUP), num_kv_heads, R), longest key range first. Rows shorter than `min_query` and
    blocks beyond a row's end return at once.
    Bytes: K and V up to the block's last token are read once a block of TILE // GROUP tokens and K/V head, not once a
    query head; the minimum for a tile of that height.
    """
    TOKENS: tl.constexpr = TILE // GROUP
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head, num_kv_heads = tl.program_id(1), tl.num_programs(1)
    row = tl.program_id(2)
    row_start = tl.load(cu_query_lens + row)
    length = tl.load(cu_query_lens + row + 1) - row_start
    first = block * TOKENS
    if (length < min_query) | (first >= length):
        return
    last = tl.minimum(first + TOKENS, length) - 1
    context = tl.load(context_lens + row)

    lane = tl.arange(0, TILE)
    token = first + lane // GROUP
    head = kv_head * GROUP + lane % GROUP
    exists = token <= last
    dims = tl.arange(0, BLOCK_D)
    query_row = (row_start + token).to(tl.int64) * (num_kv_heads * GROUP) + head
    query_mask = exists[:, None] & (dims < HEAD_DIM)[None, :]
    q = tl.load(query + query_row[:, None] * HEAD_DIM + dims[None, :], mask=query_mask, other=0.0)
    position = context + token
    floor = tl.where(window > 0, position - window, -1)

    end = context + last + 1
    range_first = tl.where(window > 0, tl.maximum(context + first - window + 1, 0), 0)
    begin = range_first // BLOCK_N * BLOCK_N
    page_row = page_table + row.to(tl.int64) * max_pages
    scale_log2 = scale * 1.4426950408889634
    acc = tl.zeros([TILE, BLOCK_D], dtype=tl.float32)
    top = tl.full([TILE], float("-inf"), dtype=tl.float32)
    total = tl.zeros([TILE], dtype=tl.float32)
    acc, top, total = attend_pages(
        q, kv_pages, page_row, kv_head, num_kv_heads, range_first, begin, end, position, floor, scale_log2,
        acc, top, total,
        HEAD_DIM, PAGE_SIZE, BLOCK_D, BLOCK_N,
    )  # fmt: skip

    store_result(output, output, output, query_row, query_row, exists, 0, 1, acc, top, total, HEAD_DIM, BLOCK_D)
