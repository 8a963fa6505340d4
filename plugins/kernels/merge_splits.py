# SPDX-License-Identifier: Apache-2.0
"""Joins the splits of verify_attention or shared_kv_attention by their log-sum-exps."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def merge_splits(
    partial_out, partial_lse, cu_query_lens, output, max_query, splits,
    HEAD_DIM: tl.constexpr, PACKED: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Output of one query token and head: the splits' results, weighted by 2 ** lse.

    PACKED: rows are ragged and lie one after the other in `output`; else every row has `max_query` tokens.

    Geometry: grid (max_query, num_heads, R); splits <= BLOCK_S.
    Bytes: each partial that saw a key is read once, the output written once.
    """
    token, head, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_heads = tl.num_programs(1)
    if PACKED:
        first_token = tl.load(cu_query_lens + row)
        length = tl.load(cu_query_lens + row + 1) - first_token
        if (token >= length) | (length > max_query):
            return
    else:
        first_token = row * max_query
    part = tl.arange(0, BLOCK_S)
    index = ((row * max_query + token).to(tl.int64) * num_heads + head) * splits + part
    lse = tl.load(partial_lse + index, mask=part < splits, other=float("-inf"))
    weight = tl.exp2(lse - tl.max(lse, 0))
    dims = tl.arange(0, BLOCK_D)
    mask = (lse > float("-inf"))[:, None] & (dims < HEAD_DIM)[None, :]
    partial = tl.load(partial_out + index[:, None] * HEAD_DIM + dims[None, :], mask=mask, other=0.0)
    result = tl.sum(weight[:, None] * partial, 0) / tl.sum(weight, 0)
    target = ((first_token + token).to(tl.int64) * num_heads + head) * HEAD_DIM + dims
    tl.store(output + target, result.to(output.dtype.element_ty), mask=dims < HEAD_DIM)
