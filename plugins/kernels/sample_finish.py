# SPDX-License-Identifier: Apache-2.0
"""SampleTokens, last pass: token, log-probability and finite flag of each row from the results of its chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from .sample_core import NO_ID, option_row


@triton.jit
def sample_finish(
    row_ids, temperature, scan_max, scan_sum, scan_id, scan_bad, pick_score, pick_id, pick_logit,
    ids, logprobs, finite, num_rows, chunks,
    MAX_CHUNKS: tl.constexpr,
):  # fmt: skip
    """Reduce the chunks of one row.

    The log-probability is that of the raw distribution (temperature 1, no filter). A row that is not finite gets the
    greedy token of its finite logits, so its id stays in range.

    Geometry: grid (K). Bytes: 28 a chunk, each read once.
    """
    row = tl.program_id(0)
    chunk = tl.arange(0, MAX_CHUNKS)
    inside = chunk < chunks
    index = row.to(tl.int64) * chunks + chunk
    chunk_max = tl.load(scan_max + index, mask=inside, other=float("-inf"))
    top = tl.max(chunk_max, 0)
    shift = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.load(scan_sum + index, mask=inside, other=0.0) * tl.exp(chunk_max - shift), 0)
    chunk_id = tl.load(scan_id + index, mask=inside, other=NO_ID)
    bad = tl.sum(tl.load(scan_bad + index, mask=inside, other=0), 0)
    token = tl.min(tl.where(chunk_max == top, chunk_id, NO_ID), 0)
    logit = shift
    if tl.load(temperature + option_row(row_ids, row, num_rows)) > 0.0:
        score = tl.load(pick_score + index, mask=inside, other=float("-inf"))
        best = tl.max(score, 0)
        if best > float("-inf"):
            candidate = tl.load(pick_id + index, mask=inside, other=NO_ID)
            token = tl.min(tl.where(score == best, candidate, NO_ID), 0)
            at_token = (score == best) & (candidate == token)
            logit = tl.max(tl.where(at_token, tl.load(pick_logit + index, mask=inside, other=0.0), float("-inf")), 0)
    tl.store(ids + row, token)
    tl.store(logprobs + row, logit - shift - tl.log(tl.where(total == 0.0, 1.0, total)))
    tl.store(finite + row, (bad == 0).to(tl.uint8))
