# SPDX-License-Identifier: Apache-2.0
"""What the kernels of SampleTokens share: clean logits, scaled logits, and the row of the sampling options."""

from __future__ import annotations

import triton
import triton.language as tl

NO_ID = tl.constexpr(2147483647)


@triton.jit
def load_logits(logits_row, column, vocab_size):
    """Logits at `column`, and which of them are not finite; those and columns beyond the vocabulary read -inf."""
    inside = column < vocab_size
    value = tl.load(logits_row + column, mask=inside, other=float("-inf"))
    good = tl.abs(value) < float("inf")
    return tl.where(good, value, float("-inf")), inside & (good == 0)


@triton.jit
def scaled(logit, top, temperature):
    """z = (logit - max) / temperature, rounded as IEEE division does, so that ties are the same everywhere."""
    return tl.div_rn(logit - top, temperature)


@triton.jit
def option_row(row_ids, row, num_rows):
    """Row of the sampling options for one row of logits; padding points into the table too."""
    return tl.minimum(tl.maximum(tl.load(row_ids + row), 0), num_rows - 1)


@triton.jit
def row_top(scan_max, row, chunks, MAX_CHUNKS: tl.constexpr):
    """Greatest finite logit of a row; a finite number also where there is none."""
    chunk = tl.arange(0, MAX_CHUNKS)
    values = tl.load(scan_max + row.to(tl.int64) * chunks + chunk, mask=chunk < chunks, other=float("-inf"))
    return tl.maximum(tl.max(values, 0), -3.0e38)
