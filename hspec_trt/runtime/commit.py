# SPDX-License-Identifier: Apache-2.0
"""Writes what a step emitted into the table: tokens kept, drafts for the next step, and who ended why.

Whom to tell and whose pages go back is `hspec_trt.runtime.core`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hspec_trt.runtime.request import Sequence
from hspec_trt.runtime.scheduler import StepPlan
from hspec_trt.runtime.session import StepOutputs
from hspec_trt.runtime.stats import NoDrafts
from hspec_trt.runtime.stop import FinishReason, find_end
from hspec_trt.runtime.table import Int64, SlotTable

REASONS: Final[tuple[FinishReason | None, ...]] = (None, "eos", "stop_token", "stop_string", "length", "error")
_OFF, _POLICY, _LENGTH, _POSITION, _NO_MATCH = (
    int(reason) for reason in (NoDrafts.OFF, NoDrafts.POLICY, NoDrafts.LENGTH, NoDrafts.POSITION, NoDrafts.NO_MATCH)
)
_CODE: Final = {reason: code for code, reason in enumerate(REASONS)}


@dataclass(frozen=True)
class Committed:
    """What a step did, per row of its plan.

    Attributes:
        kept: tokens that were kept.
        ending: index into `REASONS`.
        accepted: drafts that were accepted and kept.
    """

    kept: Int64
    ending: Int64
    accepted: Int64


class Committer:
    """Applies outputs to a table.

    Args:
        eos_ids: the model's end tokens.
    """

    def __init__(self, table: SlotTable, eos_ids: frozenset[int]) -> None:
        self._table = table
        self._is_eos = np.zeros(table.limits.vocab_size, bool)
        self._is_eos[[i for i in eos_ids if i < table.limits.vocab_size]] = True
        self._columns = np.arange(table.limits.num_drafts + 1)

    def commit(self, plan: StepPlan, outputs: StepOutputs) -> Committed:
        """Keep what each row may keep, move its context on, store its drafts and count."""
        verified = plan.verify_lens > 0
        failed = verified & ~outputs.finite
        emitted = np.where(verified & ~failed, outputs.emitted_lens, 0).astype(np.int64)
        kept, ending = self._find_endings(plan, outputs, emitted, verified)
        ending = np.where(failed, _CODE["error"], ending)
        self._write_tokens(plan, outputs, kept)
        table, slots = self._table, plan.slots
        table.known[slots] += kept
        table.context[slots] = np.where(verified, table.known[slots] - 1, table.context[slots] + plan.query_lens)
        self._store_drafts(plan, outputs)
        accepted = np.minimum(kept, emitted - 1).clip(0)
        self._count(plan, kept, accepted, verified & ~failed)
        return Committed(kept, ending, accepted)

    def _find_endings(
        self, plan: StepPlan, outputs: StepOutputs, emitted: Int64, verified: NDArray[np.bool_]
    ) -> tuple[Int64, Int64]:
        table, slots = self._table, plan.slots
        budget = table.end[slots] - table.known[slots]
        kept = np.minimum(emitted, budget)
        ending = np.where(verified & (emitted >= budget), _CODE["length"], 0)
        is_eos = self._is_eos[np.maximum(outputs.emitted_ids, 0)] & (self._columns < kept[:, None])
        eos_rows = is_eos.any(axis=1) & table.eos[slots]
        if eos_rows.any():
            kept = np.where(eos_rows, is_eos.argmax(axis=1) + 1, kept)
            ending = np.where(eos_rows, _CODE["eos"], ending)
        for row in np.flatnonzero(table.custom[slots] & (emitted > 0)).tolist():
            seq = table.sequence(int(slots[row]))
            run = outputs.emitted_ids[row, : emitted[row]].tolist()
            end = find_end(run, int(budget[row]), seq.rules, seq.text)
            kept[row], ending[row] = end.kept, _CODE[end.reason]
        return kept, ending

    def _write_tokens(self, plan: StepPlan, outputs: StepOutputs, kept: Int64) -> None:
        rows, columns = np.nonzero(self._columns < kept[:, None])
        slots = plan.slots[rows]
        places = self._table.known[slots] + columns
        self._table.tokens[slots, places] = outputs.emitted_ids[rows, columns]
        self._table.logprobs[slots, places] = outputs.emitted_logprobs[rows, columns]

    def _store_drafts(self, plan: StepPlan, outputs: StepOutputs) -> None:
        """Drafts go right after the known tokens; as many count as length and the drafter's positions allow."""
        table, limits = self._table, self._table.limits
        table.num_drafts[plan.slots] = 0
        slots = plan.slots[plan.draft]
        known = table.known[slots]
        if slots.size:
            table.tokens[slots[:, None], known[:, None] + self._columns[:-1]] = outputs.draft_ids
            by_position = limits.draft_max_position - known
            by_length = table.end[slots] - known - 1
            usable = np.minimum(np.minimum(by_position, by_length), table.most_drafts[slots])
            table.num_drafts[slots] = np.maximum(usable, 0)
        self._note_reasons(plan)
        for slot in plan.slots[table.lookup[plan.slots] & (plan.verify_lens > 0)].tolist():
            self._look_up(table.sequence(slot), slot)

    def _note_reasons(self, plan: StepPlan) -> None:
        """Why the next step of a row that was not drafted for has no drafts."""
        table, slots = self._table, plan.slots[plan.verify_lens > 0]
        if not slots.size:
            return
        known = table.known[slots]
        reason = np.where(table.drafter[slots], _POLICY, _NO_MATCH)
        reason = np.where(known >= table.limits.draft_max_position, _POSITION, reason)
        reason = np.where(table.end[slots] - known < 2, _LENGTH, reason)
        table.no_drafts[slots] = np.where(table.mode[slots] == 0, _OFF, reason)

    def _look_up(self, seq: Sequence, slot: int) -> None:
        table = self._table
        known = int(table.known[slot])
        limit = min(int(table.most_drafts[slot]), int(table.end[slot]) - known - 1)
        if seq.lookup is None or table.mode[slot] == 0 or limit < 1:
            return
        found = seq.lookup.propose(table.tokens[slot, :known], limit)
        if found.size:
            table.tokens[slot, known : known + found.size] = found
            table.num_drafts[slot] = found.size

    def _count(self, plan: StepPlan, kept: Int64, accepted: Int64, counted: NDArray[np.bool_]) -> None:
        table, slots, columns = self._table, plan.slots[counted], self._columns[:-1]
        table.steps[slots] += 1
        table.emitted[slots] += kept[counted]
        table.lengths[slots, kept[counted]] += 1
        table.offered[slots] += columns < plan.num_drafts[counted][:, None]
        table.accepted[slots] += columns < accepted[counted][:, None]
        bare = counted & plan.bare
        table.without[plan.slots[bare], plan.reasons[bare]] += 1
