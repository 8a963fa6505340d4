# SPDX-License-Identifier: Apache-2.0
"""A plan's rows as the arrays of a step. Copies and index arithmetic only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hspec_trt.runtime.scheduler import StepPlan
from hspec_trt.runtime.session import StepExtras, StepInputs
from hspec_trt.runtime.table import Int64, SlotTable


def pack(plan: StepPlan, table: SlotTable, extras: StepExtras | None = None) -> StepInputs:
    """The inputs of a step, without padding: N, T and K are what the rows need, but K is at least 1.

    Row r runs ``tokens[slot, context : context + query_len]``; its drafts lie in the table right after its tokens, and
    there is always one place more. What lies there is a known token exactly where a row is in mid-prefill.
    """
    slots, lens = plan.slots, plan.query_lens
    context = table.context[slots]
    cu_query, cu_verify = _starts(lens), _starts(plan.verify_lens)
    starts, num_tokens, num_verified = cu_query[:-1], int(cu_query[-1]), int(cu_verify[-1])
    first_cell = slots * table.width + context
    longest, packed = int(lens.max()), np.arange(num_tokens)
    cells = (first_cell - starts).repeat(lens) + packed
    if num_tokens == longest * lens.size:
        query_slots = packed.reshape(-1, longest)
    else:
        query_slots = starts[:, None] + np.minimum(packed[:longest], lens[:, None] - 1)
    if num_verified == num_tokens:
        verify_rows = packed
    else:
        first_verify = cu_query[1:] - plan.verify_lens - cu_verify[:-1]
        verify_rows = first_verify.repeat(plan.verify_lens) + packed[:num_verified]
    num_pages = -(-int((context + lens).max()) // table.limits.page_size)
    return StepInputs(
        input_ids=table.flat_tokens[cells],
        cu_query_lens=_int32(cu_query),
        context_lens=_int32(context),
        query_slots=_int32(query_slots),
        verify_rows=_int32(verify_rows) if verify_rows.size else np.zeros(1, np.int32),
        cu_verify_lens=_int32(cu_verify),
        draft_rows=_int32(plan.draft.nonzero()[0]),
        page_table=table.pages[slots, :num_pages],
        temperature=table.temperature[slots],
        top_p=table.top_p[slots],
        min_p=table.min_p[slots],
        top_k=table.top_k[slots],
        seed=table.seed[slots],
        next_ids=table.flat_tokens[first_cell + lens],
        extras=extras,
    )


def _starts(lens: Int64) -> Int64:
    starts = np.zeros(lens.size + 1, np.int64)
    lens.cumsum(out=starts[1:])
    return starts


def _int32(values: NDArray[np.int64]) -> NDArray[np.int32]:
    return values.astype(np.int32)
