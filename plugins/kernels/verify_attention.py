# SPDX-License-Identifier: Apache-2.0
"""PagedAttention for short rows: decode (one token) and verification (bonus token and drafts)."""

from __future__ import annotations

import triton
import triton.language as tl

from .attention_core import attend_pages, store_result


@triton.jit
def verify_attention(
    query, kv_pages, cu_query_lens, context_lens, page_table, output, partial_out, partial_lse,
    scale, window, max_pages, max_query,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, PAGE_SIZE: tl.constexpr, TILE: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Causal attention of a row's query tokens over one split of its pages.

    All query heads that share a K/V head, of all tokens of the row, form one tile of TILE query rows.

    Geometry: grid (splits, num_kv_heads, R). The key range of each row (the window's part of it) is cut into `splits`
    parts of whole BLOCK_N tiles, by the row's own length, so that rows of any length spread evenly.
    Bytes: each K and V element in range is read by exactly one program, once: 4 * HEAD_DIM bytes a position and K/V
    head for 16-bit types, which is the minimum. Q is read once a split; a split writes TILE * (HEAD_DIM + 1) floats.
    """
    split, splits = tl.program_id(0), tl.num_programs(0)
    kv_head, num_kv_heads = tl.program_id(1), tl.num_programs(1)
    row = tl.program_id(2)
    first_token = tl.load(cu_query_lens + row)
    length = tl.load(cu_query_lens + row + 1) - first_token
    if (length <= 0) | (length > max_query):
        return
    context = tl.load(context_lens + row)

    lane = tl.arange(0, TILE)
    token = lane // GROUP
    head = kv_head * GROUP + lane % GROUP
    exists = token < length
    dims = tl.arange(0, BLOCK_D)
    query_row = (first_token + token).to(tl.int64) * (num_kv_heads * GROUP) + head
    query_mask = exists[:, None] & (dims < HEAD_DIM)[None, :]
    q = tl.load(query + query_row[:, None] * HEAD_DIM + dims[None, :], mask=query_mask, other=0.0)
    position = context + token
    floor = tl.where(window > 0, position - window, -1)

    range_end = context + length
    range_first = tl.where(window > 0, tl.maximum(context - window + 1, 0), 0)
    range_begin = range_first // BLOCK_N * BLOCK_N
    share = tl.cdiv(tl.cdiv(range_end - range_begin, BLOCK_N), splits) * BLOCK_N
    begin = range_begin + split * share
    end = tl.minimum(begin + share, range_end)

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

    slot = (row * max_query + token).to(tl.int64) * (num_kv_heads * GROUP) + head
    store_result(
        output, partial_out, partial_lse, query_row, slot, exists, split, splits, acc, top, total, HEAD_DIM, BLOCK_D
    )
