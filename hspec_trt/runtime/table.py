# SPDX-License-Identifier: Apache-2.0
"""State of the running sequences that every step reads and writes, one line per slot, as arrays.

Arrays rather than objects because a step of 128 rows then costs some dozens of NumPy calls and not thousands of
Python ones. It owns layout and the moving in and out of sequences; which rows a step runs is the scheduler's choice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hspec_trt.config.sampling import Drafting
from hspec_trt.runtime.request import NO_SLOT, Sequence
from hspec_trt.runtime.session import Limits
from hspec_trt.runtime.stats import DraftStats, NoDrafts

Int64 = NDArray[np.int64]
DRAFT_MODES: dict[Drafting, int] = {"off": 0, "on": 1, "auto": 2}


class SlotTable:
    """One line per slot.

    Attributes:
        tokens: int32 ``[slots, width]``; a sequence's tokens, then its `num_drafts` drafts, then anything.
        logprobs: float32, same form. `flat_tokens` and `flat_logprobs` are views of both in one dimension.
        known: tokens of the sequence; `context` of them are in the pages, `end` is the length at which it ends.
        pages: int32 ``[slots, max_pages_per_row]``, page 0 beyond `num_pages`; `entered` are in the prefix cache.
        eos: whether the model's end tokens end it; `custom`: whether other rules must be looked at in Python.
        most_drafts: drafts that the request allows in a step.
        mode: a value of `DRAFT_MODES`; `drafter` and `lookup`: where its drafts may come from.
        shaped: whether it wants something of its rows of logits (`hspec_trt.runtime.shaper`).
        emitted_at: when a step last gave it tokens, seconds of a monotonic clock; 0 before the first.
        no_drafts: a `NoDrafts`, why there are none where `num_drafts` is 0.
        begun: whether it has left its prompt behind.
        lengths, offered, accepted: decode steps by the tokens that they kept, by the drafts that they verified, and by
            those that were accepted; without: a figure of `DraftStats`.
    """

    def __init__(self, limits: Limits, num_slots: int) -> None:
        self.limits = limits
        drafts = limits.num_drafts
        width = self.width = limits.max_seq_len + drafts + 1

        def counts(*dims: int) -> Int64:
            return np.zeros((num_slots, *dims), np.int64)

        self.tokens = np.zeros((num_slots, width), np.int32)
        self.logprobs = np.zeros((num_slots, width), np.float32)
        self.flat_tokens, self.flat_logprobs = self.tokens.reshape(-1), self.logprobs.reshape(-1)
        self.known, self.context, self.end, self.prompt = counts(), counts(), counts(), counts()
        self.num_drafts, self.mode, self.no_drafts = counts(), counts(), counts()
        self.most_drafts = counts()
        self.pages = np.zeros((num_slots, limits.max_pages_per_row), np.int32)
        self.num_pages, self.entered = counts(), counts()
        self.temperature, self.top_p, self.min_p = (np.zeros(num_slots, np.float32) for _ in range(3))
        self.top_k = np.zeros(num_slots, np.int32)
        self.seed = counts()
        self.eos, self.custom, self.drafter = (np.zeros(num_slots, bool) for _ in range(3))
        self.emitted_at = np.zeros(num_slots)
        self.lookup, self.streaming, self.shaped = (np.zeros(num_slots, bool) for _ in range(3))
        self.begun = np.zeros(num_slots, bool)
        self.offered, self.accepted = counts(drafts + 1), counts(drafts + 1)
        self.lengths, self.without = counts(drafts + 2), counts(len(NoDrafts))
        self.sequences: list[Sequence | None] = [None] * num_slots
        self._free = list(range(num_slots - 1, -1, -1))

    @property
    def has_free_slot(self) -> bool:
        """True where a sequence can move in."""
        return bool(self._free)

    def sequence(self, slot: int) -> Sequence:
        """The sequence of an occupied slot."""
        found = self.sequences[slot]
        if found is None:
            raise ValueError(f"slot {slot} is empty")
        return found

    def move_in(self, seq: Sequence, pages: list[int], default_eos: bool) -> None:
        """Give a sequence a slot.

        Args:
            pages: those that already hold its start.
            default_eos: its rules are the model's own end tokens and no stop string.
        """
        slot = seq.slot = self._free.pop()
        self.sequences[slot] = seq
        size, params = len(seq.tokens), seq.params
        self.tokens[slot, :size] = seq.tokens
        self.logprobs[slot, seq.prompt_len : size] = seq.logprobs
        self.known[slot], self.end[slot], self.prompt[slot] = size, seq.end_len, seq.prompt_len
        self.context[slot] = len(pages) * self.limits.page_size
        self.pages[slot, : len(pages)] = pages
        self.num_pages[slot] = self.entered[slot] = len(pages)
        self.temperature[slot], self.top_p[slot], self.min_p[slot] = params.temperature, params.top_p, params.min_p
        self.top_k[slot], self.seed[slot] = params.top_k, seq.seed
        self.eos[slot] = default_eos
        self.custom[slot] = seq.text is not None or not (default_eos or seq.rules.is_empty)
        self.mode[slot], self.num_drafts[slot] = DRAFT_MODES[params.drafts], 0
        self.most_drafts[slot] = params.num_drafts or self.limits.num_drafts
        self.drafter[slot], self.lookup[slot] = seq.uses_drafter, seq.lookup is not None
        self.streaming[slot], self.shaped[slot] = seq.streaming, seq.shaper.is_needed
        self.emitted_at[slot] = seq.emitted_at

    def move_out(self, seq: Sequence) -> list[int]:
        """Take a sequence's slot, with its tokens and figures brought up to date; returns its pages."""
        slot, size = seq.slot, int(self.known[seq.slot])
        seq.tokens = self.tokens[slot, :size].copy()
        seq.logprobs = self.logprobs[slot, seq.prompt_len : size].copy()
        seq.emitted_at = float(self.emitted_at[slot])
        seq.drafts.add(self._take_stats(slot))
        pages: list[int] = self.pages[slot, : self.num_pages[slot]].tolist()
        self.pages[slot] = 0
        self.num_pages[slot] = 0
        self.sequences[slot] = None
        self._free.append(slot)
        seq.slot = NO_SLOT
        return pages

    def _take_stats(self, slot: int) -> DraftStats:
        lengths = {length: count for length, count in enumerate(self.lengths[slot].tolist()) if count}
        stats = DraftStats(
            steps=sum(lengths.values()),
            emitted=sum(length * count for length, count in lengths.items()),
            first_tokens=int(self.begun[slot]),
            offered=at_least(self.offered[slot]).tolist(),
            accepted=at_least(self.accepted[slot]).tolist(),
        )
        stats.lengths.update(lengths)
        stats.without.update({NoDrafts(i).label: int(count) for i, count in enumerate(self.without[slot]) if count})
        self.begun[slot] = False
        for array in (self.lengths, self.offered, self.accepted, self.without):
            array[slot] = 0
        return stats


def at_least(counts: Int64) -> Int64:
    """How many were 1 or more, 2 or more, .. n or more: int64 ``[n]``, of how many were 0, 1, .. n."""
    return counts[::-1].cumsum()[-2::-1]
