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
        counted: bool, whether the row had a decode step: finite, and not the one that ends a prompt.
        first: rows whose step ended a prompt, int64 ``[..]``.
    """

    kept: Int64
    ending: Int64
    accepted: Int64
    counted: NDArray[np.bool_]
    first: Int64


class Committer:
    """Applies outputs to a table.

    Its arrays are small, so a step costs what the calls of NumPy cost: cells are addressed by one flat index, and a
    question that seldom has an answer is asked of all rows first.

    Args:
        eos_ids: the model's end tokens.
    """

    def __init__(self, table: SlotTable, eos_ids: frozenset[int]) -> None:
        self._table = table
        self._is_eos = np.zeros(table.limits.vocab_size, bool)
        self._is_eos[[i for i in eos_ids if i < table.limits.vocab_size]] = True
        self._columns = np.arange(table.limits.num_drafts + 1)
        rows = table.known.size
        self._emitted_columns, self._draft_columns = np.tile(self._columns, rows), np.tile(self._columns[:-1], rows)

    def commit(self, plan: StepPlan, outputs: StepOutputs) -> Committed:
        """Keep what each row may keep, move its context on, store its drafts and count."""
        table, slots = self._table, plan.slots
        verified = plan.verify_lens > 0
        good = verified & outputs.finite
        emitted = np.where(good, outputs.emitted_lens, 0)
        ids = np.maximum(outputs.emitted_ids, 0)
        known = table.known[slots]
        kept, ending = self._find_endings(plan, ids, emitted, table.end[slots] - known)
        if not good.all():
            ending[verified & ~good] = _CODE["error"]
        self._write_tokens(slots, known, ids, outputs.emitted_logprobs)
        known += kept
        table.known[slots] = known
        table.context[slots] = np.where(verified, known - 1, table.context[slots] + plan.query_lens)
        self._store_drafts(plan, outputs, known, verified)
        accepted = np.minimum(kept, np.maximum(emitted - 1, 0))
        counted, first = self._count(plan, kept, accepted, good)
        return Committed(kept, ending, accepted, counted, first)

    def _find_endings(
        self, plan: StepPlan, ids: NDArray[np.int32], emitted: NDArray[np.int32], budget: Int64
    ) -> tuple[Int64, Int64]:
        table, slots = self._table, plan.slots
        kept = np.minimum(emitted, budget)
        ending = (emitted >= budget) * _CODE["length"]  # a budget is at least 1
        is_eos = self._is_eos[ids]
        if is_eos.any():
            is_eos &= self._columns < kept[:, None]
            eos_rows = is_eos.any(axis=1) & table.eos[slots]
            kept = np.where(eos_rows, is_eos.argmax(axis=1) + 1, kept)
            ending = np.where(eos_rows, _CODE["eos"], ending)
        custom = table.custom[slots]
        for row in (custom & (emitted > 0)).nonzero()[0].tolist() if custom.any() else ():
            seq = table.sequence(int(slots[row]))
            end = find_end(ids[row, : emitted[row]].tolist(), int(budget[row]), seq.rules, seq.text)
            kept[row], ending[row] = end.kept, _CODE[end.reason]
        return kept, ending

    def _write_tokens(self, slots: Int64, known: Int64, ids: NDArray[np.int32], logprobs: NDArray[np.float32]) -> None:
        """All of a row's columns: what is not kept lies beyond the known tokens, where nobody looks."""
        table = self._table
        cells = (slots * table.width + known).repeat(self._columns.size) + self._emitted_columns[: ids.size]
        table.flat_tokens[cells] = ids.reshape(-1)
        table.flat_logprobs[cells] = logprobs.reshape(-1)

    def _store_drafts(self, plan: StepPlan, outputs: StepOutputs, known: Int64, verified: NDArray[np.bool_]) -> None:
        """Drafts go right after the known tokens; as many count as length and the drafter's positions allow."""
        table, slots = self._table, plan.slots
        left = table.end[slots] - known
        table.num_drafts[slots] = 0
        rows = plan.draft.nonzero()[0]
        if rows.size:
            drafted, after = slots[rows], known[rows]
            starts = (drafted * table.width + after).repeat(outputs.draft_ids.shape[1])
            table.flat_tokens[starts + self._draft_columns[: starts.size]] = outputs.draft_ids.reshape(-1)
            by_position = table.limits.draft_max_position - after
            usable = np.minimum(np.minimum(by_position, left[rows] - 1), table.most_drafts[drafted])
            table.num_drafts[drafted] = np.maximum(usable, 0)
        if not table.num_drafts[slots].all():
            self._note_reasons(slots, known, left, verified)
        lookup = table.lookup[slots]
        for slot in slots[lookup & verified].tolist() if lookup.any() else ():
            self._look_up(table.sequence(slot), slot)

    def _note_reasons(self, slots: Int64, known: Int64, left: Int64, verified: NDArray[np.bool_]) -> None:
        """Why the next step of a row has no drafts, should it have none."""
        table = self._table
        reason = np.where(table.drafter[slots], _POLICY, _NO_MATCH)
        reason = np.where(known >= table.limits.draft_max_position, _POSITION, reason)
        reason = np.where(left < 2, _LENGTH, reason)
        reason = np.where(table.mode[slots] == 0, _OFF, reason)
        table.no_drafts[slots] = np.where(verified, reason, table.no_drafts[slots])

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

    def _count(
        self, plan: StepPlan, kept: Int64, accepted: Int64, good: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], Int64]:
        """Add to the rows' figures; returns which rows had a decode step, and the rows that ended a prompt."""
        table, slots = self._table, plan.slots
        begun = table.begun[slots]
        counted, first = good & begun, (good & ~begun).nonzero()[0]
        table.begun[slots[first]] = True
        offered = plan.num_drafts
        if not counted.all():
            slots, kept, accepted, offered = slots[counted], kept[counted], accepted[counted], offered[counted]
        at = slots * self._columns.size
        table.lengths.reshape(-1)[at + slots + kept] += 1
        table.offered.reshape(-1)[at + offered] += 1
        table.accepted.reshape(-1)[at + accepted] += 1
        if plan.bare.any():
            bare = counted & plan.bare
            table.without[plan.slots[bare], plan.reasons[bare]] += 1
        return counted, first
