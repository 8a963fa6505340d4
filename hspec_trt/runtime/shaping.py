# SPDX-License-Identifier: Apache-2.0
"""What requests want of single rows of logits in a step, put together from all rows: edits, masks, lists of tokens.

Only rows whose request uses such an option are looked at. How an edit or a mask comes about is the business of
`hspec_trt.runtime.edits` and `hspec_trt.runtime.guided`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hspec_trt.errors import RequestError
from hspec_trt.runtime.edits import RowEdits
from hspec_trt.runtime.request import Sequence
from hspec_trt.runtime.scheduler import StepPlan
from hspec_trt.runtime.session import StepExtras, StepOutputs
from hspec_trt.runtime.table import Int64, SlotTable


@dataclass
class ShapedStep:
    """The extras of one step, and whose lists of tokens its outputs will hold."""

    extras: StepExtras
    top_owners: list[tuple[int, int]]  # row of the plan, its first line in the outputs
    failed: list[tuple[Sequence, RequestError]]  # answers whose grammar gave up


def shape_step(plan: StepPlan, table: SlotTable) -> ShapedStep | None:
    """Collect the extras of a plan's rows; None where no row wants any. Asking again for the same rows is harmless."""
    shaped = table.shaped[plan.slots]
    wanted = (shaped & (plan.verify_lens > 0)).nonzero()[0].tolist() if shaped.any() else []
    if not wanted:
        return None
    starts = np.cumsum(plan.verify_lens) - plan.verify_lens
    edits: list[tuple[int, RowEdits]] = []
    masks: list[tuple[int, NDArray[np.bool_]]] = []
    tops: list[int] = []
    owners: list[tuple[int, int]] = []
    failed: list[tuple[Sequence, RequestError]] = []
    for row in wanted:
        slot, first = int(plan.slots[row]), int(starts[row])
        known, seq = int(table.known[slot]), table.sequence(slot)
        shaper = seq.shaper
        text = table.tokens[slot, :known]
        drafts = table.tokens[slot, known : known + int(plan.num_drafts[row])].tolist()
        if shaper.edits:
            edits += enumerate(shaper.edits.rows(text, drafts), first)
        if shaper.guide:
            try:
                masks += enumerate(shaper.guide.rows(text, drafts), first)
            except RequestError as error:
                failed.append((seq, error))
        if shaper.num_top:
            owners.append((row, len(tops)))
            tops += range(first, first + len(drafts) + 1)
    return ShapedStep(_extras(edits, masks, tops, table.limits.vocab_size), owners, failed)


def take_tops(shaped: ShapedStep, plan: StepPlan, table: SlotTable, outputs: StepOutputs, kept: Int64) -> None:
    """Note the lists of tokens of the positions that were kept."""
    if not shaped.top_owners or outputs.top_ids is None or outputs.top_logprobs is None:
        return
    ids, logprobs = outputs.top_ids.tolist(), outputs.top_logprobs.tolist()
    for row, first in shaped.top_owners:
        shaper = table.sequence(int(plan.slots[row])).shaper
        for line in range(first, first + int(kept[row])):
            pairs = zip(ids[line][: shaper.num_top], logprobs[line][: shaper.num_top], strict=True)
            shaper.tops.append(list(pairs))


def _extras(
    edits: list[tuple[int, RowEdits]], masks: list[tuple[int, NDArray[np.bool_]]], tops: list[int], vocab_size: int
) -> StepExtras:
    none = StepExtras.none(vocab_size)
    return StepExtras(
        edit_rows=np.repeat([row for row, _ in edits], [e.ids.size for _, e in edits]).astype(np.int32),
        edit_ids=np.concatenate([none.edit_ids, *(e.ids for _, e in edits)]),
        edit_scales=np.concatenate([none.edit_scales, *(e.scales for _, e in edits)]),
        edit_biases=np.concatenate([none.edit_biases, *(e.biases for _, e in edits)]),
        mask_rows=np.array([row for row, _ in masks], np.int32),
        token_masks=np.stack([mask for _, mask in masks]) if masks else none.token_masks,
        top_rows=np.array(tops, np.int32),
    )
