# SPDX-License-Identifier: Apache-2.0
"""SampleTokens, third pass: the best token of each chunk under the noise (Gumbel-max), for rows that are sampled."""

from __future__ import annotations

import triton
import triton.language as tl

from .noise import LEAST_REACH, gumbel, row_keys
from .sample_core import NO_ID, load_logits, option_row, row_top, scaled


@triton.jit
def sample_pick(
    logits, token_ids, row_ids, positions, temperature, seed, scan_max, thresholds, pick_score, pick_id, pick_logit,
    vocab_size, num_rows,
    VOCAB_ALIGN: tl.constexpr, CHUNK: tl.constexpr, MAX_CHUNKS: tl.constexpr,
):  # fmt: skip
    """Best z + noise of one chunk of one row; ties to the lowest id.

    Geometry: grid (cdiv(V, CHUNK), K). A greedy row returns at once.
    Bytes: logits and token ids of chunks that hold a token which may still win, once; other chunks are not read. A
    token may win if it passed the filters and its z is above the greatest spread of the noise.
    """
    tl.static_assert(VOCAB_ALIGN == 1 or VOCAB_ALIGN == 16)
    chunk, row = tl.program_id(0), tl.program_id(1)
    chunks = tl.num_programs(0)
    options = option_row(row_ids, row, num_rows)
    heat = tl.load(temperature + options)
    if heat <= 0.0:
        return
    top = row_top(scan_max, row, chunks, MAX_CHUNKS)
    least = tl.maximum(tl.load(thresholds + row), LEAST_REACH)
    index = row.to(tl.int64) * chunks + chunk
    best = heat * 0.0 - float("inf")
    best_id = chunk * 0 + NO_ID
    best_logit = heat * 0.0 - float("inf")
    if scaled(tl.load(scan_max + index), top, heat) >= least:
        column = chunk * CHUNK + tl.arange(0, CHUNK)
        value, _ = load_logits(logits + row.to(tl.int64) * vocab_size, column, vocab_size)
        z = scaled(value, top, heat)
        kept = z >= least
        token = tl.load(token_ids + column, mask=kept, other=0)
        factor, offset, shift = row_keys(tl.load(seed + options), tl.load(positions + row))
        score = tl.where(kept, z + gumbel(token, factor, offset, shift), float("-inf"))
        best = tl.max(score, 0)
        best_id = tl.min(tl.where(score == best, token, NO_ID), 0)
        best_logit = tl.max(tl.where((score == best) & (token == best_id), value, float("-inf")), 0)
    tl.store(pick_score + index, best)
    tl.store(pick_id + index, best_id)
    tl.store(pick_logit + index, best_logit)
