# SPDX-License-Identifier: Apache-2.0
"""First part of PagedAttention: puts the step's K and V into the pages."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def append_kv(
    key, value, kv_pages, page_table, token_rows, token_positions, output, num_rows, max_pages, num_kv_heads,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy K and V of one packed token to its place in the pages; zero the attention output of a padding token.

    Geometry: grid (N, cdiv(num_kv_heads * HEAD_DIM, BLOCK)); a program moves BLOCK elements of K and of V.
    Bytes: each new K and V element is read once and written once, which is the minimum. A padding token also writes
    GROUP * BLOCK zeros: attention skips it, and what it leaves must stay finite for the layers that follow. With
    GROUP = 0 there is no output to zero.
    """
    token = tl.program_id(0)
    width = num_kv_heads * HEAD_DIM
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = element < width
    row = tl.load(token_rows + token)
    position = tl.load(token_positions + token)
    padding = (row < 0) | (row >= num_rows)
    page_index = position // PAGE_SIZE
    # A position beyond the table cannot come from a valid step; it must not write to another request's page either.
    lost = padding | (position < 0) | (page_index >= max_pages)
    page = tl.load(page_table + row.to(tl.int64) * max_pages + page_index, mask=lost == 0, other=0).to(tl.int64)
    slot = tl.where(lost, token % PAGE_SIZE, position % PAGE_SIZE)

    source = token.to(tl.int64) * width + element
    head = element // HEAD_DIM
    target = (page * 2 * num_kv_heads + head) * (PAGE_SIZE * HEAD_DIM) + slot * HEAD_DIM + element % HEAD_DIM
    tl.store(kv_pages + target, tl.load(key + source, mask=inside), mask=inside)
    value_target = target + num_kv_heads * (PAGE_SIZE * HEAD_DIM)
    tl.store(kv_pages + value_target, tl.load(value + source, mask=inside), mask=inside)
    if padding:
        zeros = tl.zeros([BLOCK], dtype=output.dtype.element_ty)
        for member in tl.static_range(GROUP):
            tl.store(output + (token.to(tl.int64) * GROUP + member) * width + element, zeros, mask=inside)
