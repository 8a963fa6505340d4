# SPDX-License-Identifier: Apache-2.0
"""SampleTokens, second pass: the threshold that top-k, top-p and min-p leave, exact to the last bit of z.

z = (logit - max) / temperature is never positive, so the bits of |z| order tokens from best to worst as integers
("depth"). A threshold is found by cutting an interval of depths into 16 parts again and again, until it holds one
token at most: usually three or four passes, at most nine.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .sample_core import load_logits, option_row, row_top, scaled

LEVELS = tl.constexpr(16)
FLOOR = tl.constexpr(-40.0)
FLOOR_DEPTH = tl.constexpr(0x42200000)
"""Bits of 40.0."""


@triton.jit
def _depth(z):
    return tl.abs(z).to(tl.int32, bitcast=True)


@triton.jit
def _tally(logits_row, chunk_max, top, temperature, levels, vocab_size, chunks, CHUNK: tl.constexpr, SUB: tl.constexpr):
    """Tokens, and their sum of exp(z), at or above each level (a depth); int32 and float32 [LEVELS].

    A chunk whose best token lies below the lowest level is not read.
    """
    lowest = tl.max(levels, 0)
    counts = tl.zeros([LEVELS, SUB], dtype=tl.int32)
    masses = tl.zeros([LEVELS, SUB], dtype=tl.float32)
    for chunk in range(chunks):
        if _depth(scaled(tl.load(chunk_max + chunk), top, temperature)) <= lowest:
            for part in tl.static_range(CHUNK // SUB):
                column = chunk * CHUNK + part * SUB + tl.arange(0, SUB)
                value, _ = load_logits(logits_row, column, vocab_size)
                z = scaled(value, top, temperature)
                kept = _depth(z)[None, :] <= levels[:, None]
                counts += kept.to(tl.int32)
                masses += tl.where(kept, tl.exp(z)[None, :], 0.0)
    return tl.sum(counts, 1), tl.sum(masses, 1)


@triton.jit
def _levels(low, high, first):
    """LEVELS depths in (low, high], the last one being `high`; evenly spaced in z at first, in depth afterwards."""
    lane = tl.arange(0, LEVELS)
    even = _depth((lane + 1).to(tl.float32) * (FLOOR / LEVELS))
    step = (high - low + LEVELS - 1) // LEVELS
    return tl.minimum(tl.where(first, even, low + step * (lane + 1)), high)


@triton.jit
def _search(logits_row, chunk_max, top, temperature, lowest, min_count, min_share, vocab_size, chunks,
            CHUNK: tl.constexpr, SUB: tl.constexpr):  # fmt: skip
    """Least depth at or above which lie at least `min_count` tokens and `min_share` of the mass down to `lowest`.

    Returns `lowest` where there are not so many.
    """
    lane = tl.arange(0, LEVELS)
    low = lowest * 0 - 1
    high = lowest
    low_count = lowest * 0
    high_count = low_count + 2
    mass = temperature * 0.0
    first = low_count == 0
    while (high - low > 1) & (high_count - low_count > 1):
        levels = _levels(low, high, first)
        counts, masses = _tally(logits_row, chunk_max, top, temperature, levels, vocab_size, chunks, CHUNK, SUB)
        mass = tl.where(first, min_share * tl.max(masses, 0), mass)
        failed = tl.sum(((counts < min_count) | (masses < mass)).to(tl.int32), 0)
        low_count = tl.maximum(low_count, tl.max(tl.where(lane < failed, counts, 0), 0))
        low = tl.maximum(low, tl.max(tl.where(lane < failed, levels, -1), 0))
        high_count = tl.max(tl.where(lane <= failed, counts, 0), 0)
        high = tl.max(tl.where(lane <= failed, levels, -1), 0)
        first = low_count < 0
    return high


@triton.jit
def sample_filter(
    logits, row_ids, temperature, top_p, min_p, top_k, scan_max, thresholds, vocab_size, num_rows,
    VOCAB_ALIGN: tl.constexpr, CHUNK: tl.constexpr, SUB: tl.constexpr, MAX_CHUNKS: tl.constexpr,
):  # fmt: skip
    """Threshold on z of one row of logits: top-k first, top-p of what it leaves, then min-p. Ties at it stay in.

    Geometry: grid (K). A row without filters, or a greedy one, returns at once.
    Bytes: V logits a pass (from the second-level cache) less the chunks known to lie below; there is no lower bound
    but one read, which a sort in shared memory would need too for a row that does not fit.
    """
    tl.static_assert(VOCAB_ALIGN == 1 or VOCAB_ALIGN == 16)
    row = tl.program_id(0)
    options = option_row(row_ids, row, num_rows)
    heat = tl.load(temperature + options)
    count = tl.load(top_k + options)
    share = tl.load(top_p + options)
    ratio = tl.load(min_p + options)
    by_count = (count > 0) & (count < vocab_size) & (heat > 0.0)
    by_share = (share < 1.0) & (heat > 0.0)

    chunks = tl.cdiv(vocab_size, CHUNK)
    logits_row = logits + row.to(tl.int64) * vocab_size
    chunk_max = scan_max + row.to(tl.int64) * chunks
    top = row_top(scan_max, row, chunks, MAX_CHUNKS)
    depth = FLOOR_DEPTH + count * 0
    if by_count:
        depth = _search(logits_row, chunk_max, top, heat, depth, count, 0.0, vocab_size, chunks, CHUNK, SUB)
    if by_share:
        depth = _search(logits_row, chunk_max, top, heat, depth, 1, share, vocab_size, chunks, CHUNK, SUB)
    threshold = -depth.to(tl.float32, bitcast=True)
    if ratio > 0.0:
        threshold = tl.maximum(threshold, tl.log(ratio))
    tl.store(thresholds + row, threshold)
