# SPDX-License-Identifier: Apache-2.0
"""What the attention kernels share: addressing of pages and one step of the online softmax.

Scores are kept in powers of two: `scale_log2` is scale / ln 2, and a log-sum-exp is in base 2. It knows nothing of
rows, splits or launch geometry.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_pages(page_row, start, end, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Page numbers (int64) of positions start .. start + BLOCK_N - 1: one if the tile lies in one page, else one each.

    `start` is a multiple of BLOCK_N. Positions at or beyond `end` read nothing and give page 0.
    """
    position = start if PAGE_SIZE % BLOCK_N == 0 else start + tl.arange(0, BLOCK_N)
    return tl.load(page_row + position // PAGE_SIZE, mask=position < end, other=0).to(tl.int64)


@triton.jit
def page_offsets(
    pages, start, num_kv_heads, HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    """Offsets (int64 [BLOCK_N], elements) of head 0 of K at positions start .. start + BLOCK_N - 1."""
    lane = tl.arange(0, BLOCK_N)
    slot = (start % PAGE_SIZE) + lane if PAGE_SIZE % BLOCK_N == 0 else (start + lane) % PAGE_SIZE
    return pages * (num_kv_heads * (2 * PAGE_SIZE * HEAD_DIM)).to(tl.int64) + slot * HEAD_DIM


@triton.jit
def load_keys(base, offsets, in_range, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Tile [BLOCK_D, positions] of K; zeros out of range, so that a product never meets an unread value."""
    dims = tl.arange(0, BLOCK_D)
    mask = in_range[None, :] & (dims < HEAD_DIM)[:, None]
    return tl.load(base + offsets[None, :] + dims[:, None], mask=mask, other=0.0)


@triton.jit
def load_values(base, offsets, in_range, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Tile [positions, BLOCK_D] of V; zeros out of range."""
    dims = tl.arange(0, BLOCK_D)
    mask = in_range[:, None] & (dims < HEAD_DIM)[None, :]
    return tl.load(base + offsets[:, None] + dims[None, :], mask=mask, other=0.0)


@triton.jit
def softmax_step(query, keys, values, visible, scale_log2, acc, top, total):
    """Take one tile of keys into the running (acc, top, total); `visible` is bool [queries, keys]."""
    scores = tl.dot(query, keys, input_precision="ieee") * scale_log2
    scores = tl.where(visible, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    # A query that has seen no key yet keeps top = -inf; subtracting 0 instead keeps NaN out.
    shift = tl.where(new_top == float("-inf"), 0.0, new_top)
    weights = tl.exp2(scores - shift[:, None])
    decay = tl.exp2(top - shift)
    total = total * decay + tl.sum(weights, 1)
    acc = tl.dot(weights.to(values.dtype), values, acc * decay[:, None], input_precision="ieee")
    return acc, new_top, total


@triton.jit
def attend_pages(
    query, kv_pages, page_row, kv_head, num_kv_heads, first, begin, end, position, floor, scale_log2, acc, top, total,
    HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Take the cached positions max(first, begin) .. end - 1 of one K/V head into the running (acc, top, total).

    A query sees key positions in (floor, position], both int32 [queries]. `begin` is a multiple of BLOCK_N; positions
    before `first` are out of every query's window and are not read.
    """
    keys_base = kv_pages + kv_head * (PAGE_SIZE * HEAD_DIM)
    values_base = keys_base + num_kv_heads * (PAGE_SIZE * HEAD_DIM)
    # Page numbers are read one tile ahead, so that the copies of K and V wait for no load of the same round.
    pages = load_pages(page_row, begin, end, PAGE_SIZE, BLOCK_N)
    for start in range(begin, end, BLOCK_N):
        keys_at = start + tl.arange(0, BLOCK_N)
        in_range = (keys_at >= first) & (keys_at < end)
        offsets = page_offsets(pages, start, num_kv_heads, HEAD_DIM, PAGE_SIZE, BLOCK_N)
        pages = load_pages(page_row, start + BLOCK_N, end, PAGE_SIZE, BLOCK_N)
        visible = in_range[None, :] & (keys_at[None, :] <= position[:, None]) & (keys_at[None, :] > floor[:, None])
        keys = load_keys(keys_base, offsets, in_range, HEAD_DIM, BLOCK_D)
        values = load_values(values_base, offsets, in_range, HEAD_DIM, BLOCK_D)
        acc, top, total = softmax_step(query, keys, values, visible, scale_log2, acc, top, total)
    return acc, top, total


@triton.jit
def store_result(
    output, partial_out, partial_lse, rows, slots, stored, split, splits, acc, top, total,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the tile: to `output` when there is one split, else normalised, with its log-sum-exp, to the partials.

    Args:
        rows: index of each query in `output` [.., HEAD_DIM]; int64 [queries].
        slots: index of each query in the partials [.., splits, HEAD_DIM]; int64 [queries].
        stored: which queries exist; bool [queries].
    """
    dims = tl.arange(0, BLOCK_D)
    mask = stored[:, None] & (dims < HEAD_DIM)[None, :]
    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    result = acc / total[:, None]
    if splits == 1:
        pointers = output + rows[:, None] * HEAD_DIM + dims[None, :]
        tl.store(pointers, result.to(output.dtype.element_ty), mask=mask)
    else:
        part = slots * splits + split
        tl.store(partial_out + part[:, None] * HEAD_DIM + dims[None, :], result, mask=mask)
        tl.store(partial_lse + part, tl.where(empty, float("-inf"), top + tl.log2(total)), mask=stored)
