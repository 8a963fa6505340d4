# SPDX-License-Identifier: Apache-2.0
"""SampleTokens, first pass: maximum, sum of exponentials, greedy token and non-finite count of each chunk."""

from __future__ import annotations

import triton
import triton.language as tl

from .sample_core import NO_ID, load_logits


@triton.jit
def sample_scan(
    logits, token_ids, scan_max, scan_sum, scan_id, scan_bad, vocab_size,
    VOCAB_ALIGN: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One chunk of one row of logits.

    Geometry: grid (cdiv(V, CHUNK), K).
    Bytes: each logit is read once, which is the minimum; token ids only where a logit equals the chunk's maximum.
    """
    chunk, row = tl.program_id(0), tl.program_id(1)
    chunks = tl.num_programs(0)
    tl.static_assert(VOCAB_ALIGN == 1 or VOCAB_ALIGN == 16)
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    value, bad = load_logits(logits + row.to(tl.int64) * vocab_size, column, vocab_size)
    top = tl.max(value, 0)
    at_top = (value == top) & (column < vocab_size)
    best_id = tl.min(tl.load(token_ids + column, mask=at_top, other=NO_ID), 0)
    shift = tl.where(top == float("-inf"), 0.0, top)
    index = row.to(tl.int64) * chunks + chunk
    tl.store(scan_max + index, top)
    tl.store(scan_sum + index, tl.sum(tl.exp(value - shift), 0))
    tl.store(scan_id + index, best_id)
    tl.store(scan_bad + index, tl.sum(bad.to(tl.int32), 0))
