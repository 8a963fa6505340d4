# SPDX-License-Identifier: Apache-2.0
"""SharedKvAttention: a drafter block over the target's own pages and its own K and V, nothing written to the pages."""

from __future__ import annotations

import triton
import triton.language as tl

from .attention_core import attend_pages, load_keys, load_values, softmax_step, store_result


@triton.jit
def shared_kv_attention(
    query, key, value, kv_pages, page_table, prefix_lens, output, partial_out, partial_lse,
    scale, window, max_pages, block_len,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, PAGE_SIZE: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, NO_CONTEXT: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Attention of a whole block over positions < prefix (from the pages) and over the block itself (from key, value).

    Slot k sits at position prefix + k. The block's own keys are taken by the last split.

    Geometry: grid (splits, num_kv_heads, D); tile and splits as in `verify_attention`.
    Bytes: each K and V element in range is read by exactly one program, once, which is the minimum; so is each element
    of the block's key and value. With NO_CONTEXT the pages and the page table are not touched.
    """
    split, splits = tl.program_id(0), tl.num_programs(0)
    kv_head, num_kv_heads = tl.program_id(1), tl.num_programs(1)
    row = tl.program_id(2)

    lane = tl.arange(0, TILE)
    token = lane // GROUP
    head = kv_head * GROUP + lane % GROUP
    exists = token < block_len
    dims = tl.arange(0, BLOCK_D)
    query_row = (row * block_len + token).to(tl.int64) * (num_kv_heads * GROUP) + head
    query_mask = exists[:, None] & (dims < HEAD_DIM)[None, :]
    q = tl.load(query + query_row[:, None] * HEAD_DIM + dims[None, :], mask=query_mask, other=0.0)

    scale_log2 = scale * 1.4426950408889634
    acc = tl.zeros([TILE, BLOCK_D], dtype=tl.float32)
    top = tl.full([TILE], float("-inf"), dtype=tl.float32)
    total = tl.zeros([TILE], dtype=tl.float32)
    if split == splits - 1:
        slot = tl.arange(0, BLOCK_K)
        in_block = slot < block_len
        visible = in_block[None, :] & (slot[None, :] > tl.where(window > 0, token - window, -1)[:, None])
        if CAUSAL:
            visible = visible & (slot[None, :] <= token[:, None])
        offsets = ((row * block_len + slot).to(tl.int64) * num_kv_heads + kv_head) * HEAD_DIM
        k = load_keys(key, offsets, in_block, HEAD_DIM, BLOCK_D)
        v = load_values(value, offsets, in_block, HEAD_DIM, BLOCK_D)
        acc, top, total = softmax_step(q, k, v, visible, scale_log2, acc, top, total)

    if not NO_CONTEXT:
        prefix = tl.load(prefix_lens + row)
        position = prefix + token
        floor = tl.where(window > 0, position - window, -1)
        range_first = tl.where(window > 0, tl.maximum(prefix - window + 1, 0), 0)
        range_begin = range_first // BLOCK_N * BLOCK_N
        share = tl.cdiv(tl.cdiv(prefix - range_begin, BLOCK_N), splits) * BLOCK_N
        begin = range_begin + split * share
        end = tl.minimum(begin + share, prefix)
        page_row = page_table + row.to(tl.int64) * max_pages
        acc, top, total = attend_pages(
            q, kv_pages, page_row, kv_head, num_kv_heads, range_first, begin, end, position, floor, scale_log2,
            acc, top, total,
            HEAD_DIM, PAGE_SIZE, BLOCK_D, BLOCK_N,
        )  # fmt: skip

    store_result(
        output, partial_out, partial_lse, query_row, query_row, exists, split, splits, acc, top, total,
        HEAD_DIM, BLOCK_D,
    )  # fmt: skip
