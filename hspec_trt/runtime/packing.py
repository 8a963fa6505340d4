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
    slots, rows = plan.slots, np.arange(plan.slots.size)
    context = table.context[slots]
    cu_query, cu_verify = _starts(plan.query_lens), _starts(plan.verify_lens)
    row_of = np.repeat(rows, plan.query_lens)
    offsets = np.arange(row_of.size) - cu_query[row_of]
    verify_row_of = np.repeat(rows, plan.verify_lens)
    first_verify = cu_query[1:] - plan.verify_lens - cu_verify[:-1]
    verify_rows = first_verify[verify_row_of] + np.arange(verify_row_of.size)
    longest = np.arange(int(plan.query_lens.max()))
    num_pages = -(-int((context + plan.query_lens).max()) // table.limits.page_size)
    return StepInputs(
        input_ids=table.tokens[slots[row_of], context[row_of] + offsets],
        cu_query_lens=_int32(cu_query),
        context_lens=_int32(context),
        query_slots=_int32(cu_query[:-1, None] + np.minimum(longest, plan.query_lens[:, None] - 1)),
        verify_rows=_int32(verify_rows) if verify_rows.size else np.zeros(1, np.int32),
        cu_verify_lens=_int32(cu_verify),
        draft_rows=_int32(np.flatnonzero(plan.draft)),
        page_table=table.pages[slots, :num_pages],
        temperature=table.temperature[slots],
        top_p=table.top_p[slots],
        min_p=table.min_p[slots],
        top_k=table.top_k[slots],
        seed=table.seed[slots],
        next_ids=table.tokens[slots, context + plan.query_lens],
        extras=extras,
    )


def _starts(lens: Int64) -> Int64:
    starts = np.zeros(lens.size + 1, np.int64)
    np.cumsum(lens, out=starts[1:])
    return starts


def _int32(values: NDArray[np.int64]) -> NDArray[np.int32]:
    return values.astype(np.int32)
