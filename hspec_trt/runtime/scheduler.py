# SPDX-License-Identifier: Apache-2.0
"""Which rows a step runs, with how many tokens and drafts: admission, chunked prefill, preemption.

Every sequence that decodes gets a row in every step; what is left of the token budget goes to prompts, in the order
of the queue. Policy only: rows and pages are addressed the same way for one request and for many.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.pages import PageAllocator
from hspec_trt.runtime.prefix import PrefixCache, PrefixChain
from hspec_trt.runtime.request import Sequence
from hspec_trt.runtime.session import Limits
from hspec_trt.runtime.stats import NoDrafts
from hspec_trt.runtime.table import Int64, SlotTable


@dataclass(frozen=True)
class StepPlan:
    """The rows of one step, all ``[R]``.

    Attributes:
        slots: slot of each row.
        query_lens: tokens to run, drafts included.
        num_drafts: drafts among them.
        verify_lens: drafts + 1, or 0 in mid-prefill.
        draft: whether the drafter drafts for the row.
        bare: decode rows that could have carried drafts and carry none, with `reasons` (a `NoDrafts`) why.
    """

    slots: Int64
    query_lens: Int64
    num_drafts: Int64
    verify_lens: Int64
    draft: NDArray[np.bool_]
    bare: NDArray[np.bool_]
    reasons: Int64


class Scheduler:
    """The waiting line, the running rows and the pages.

    Args:
        eos_ids: the model's end tokens.
    """

    def __init__(self, limits: Limits, num_pages: int, options: SchedulerOptions, eos_ids: frozenset[int]) -> None:
        self.limits, self._options, self._eos_ids = limits, options, eos_ids
        rows = min(options.max_batch_size or limits.max_rows, limits.max_rows)
        self.max_tokens = max(min(options.max_num_tokens or limits.max_tokens, limits.max_tokens), rows)
        self.allocator = PageAllocator(num_pages)
        self.cache = PrefixCache(self.allocator, limits.page_size, lookahead=limits.cache_lookahead)
        self.table = SlotTable(limits, rows)
        self.running: list[Sequence] = []
        self._slots = np.zeros(0, np.int64)
        self._waiting: list[tuple[tuple[int, int], Sequence]] = []
        self.num_waiting = 0
        self.preemptions = 0
        self._blocked_at = -1  # pages that were available when the head of the line did not fit

    @property
    def longest(self) -> int:
        """Tokens that one request can reach: max_seq_len, or what the whole pool holds."""
        return min(self.limits.max_seq_len, (self.allocator.num_pages - 1) * self.limits.page_size)

    @property
    def is_idle(self) -> bool:
        """True where nothing waits or runs."""
        return not self.running and not self.num_waiting

    def add(self, seq: Sequence) -> None:
        """Put a sequence in the line."""
        heapq.heappush(self._waiting, (seq.place, seq))
        self.num_waiting += 1
        self._blocked_at = -1

    def waiting(self) -> list[Sequence]:
        """Everything in the line that has not ended."""
        return [seq for _, seq in self._waiting if seq.finish is None]

    def drop_waiting(self, seq: Sequence) -> None:
        """Take a sequence that ended while it waited out of the line."""
        self.num_waiting -= 1
        self._blocked_at = -1

    def remove(self, seq: Sequence) -> list[int]:
        """Take a running sequence off its slot; returns its pages, which the caller gives back with `release`."""
        self.running.remove(seq)
        pages = self.table.move_out(seq)
        self._renew_slots()
        return pages

    def reserve(self, slots: Int64, ends: Int64) -> bool:
        """Give running rows pages for contexts of these lengths; False, and nothing given, where there are too few."""
        needed = np.maximum(-(-ends // self.limits.page_size) - self.table.num_pages[slots], 0)
        if int(needed.sum()) > self.allocator.available:
            return False
        self._give_pages(slots, needed)
        return True

    def release(self, pages: list[int]) -> None:
        """Give pages back. A sequence's last page is the first to be used again."""
        self.allocator.release(reversed(pages))

    def plan(self, auto_drafts: int, draft_next: bool) -> StepPlan | None:
        """Choose the rows of the next step and give them their pages; None where there is nothing to run.

        Args:
            auto_drafts: drafts that a row with ``drafts="auto"`` may carry in this step.
            draft_next: whether such a row is drafted for, for the step after.
        """
        self._admit()
        most = self.limits.num_drafts
        while self.running:
            query, drafts, reasons = self._share_tokens(min(auto_drafts, most), most)
            needed = self._pages_needed(query)
            total = int(needed.sum())
            if total <= self.allocator.available:
                if total:
                    self._give_pages(self._slots, needed)
                return self._finish_plan(query, drafts, reasons, draft_next)
            if most and drafts.any():
                most = 0
            else:
                self._preempt(self.running[-1])
        return None

    def _admit(self) -> None:
        while self._waiting and self.table.has_free_slot:
            seq = self._waiting[0][1]
            if seq.finish is None and not self._fits(seq):
                return
            heapq.heappop(self._waiting)
            if seq.finish is None:
                self.num_waiting -= 1
                self._start(seq)

    def _fits(self, seq: Sequence) -> bool:
        """Whether the pages for all its tokens are there, beyond those that running rows still need for theirs."""
        available = self.allocator.available
        if not self.running:
            return True
        if available <= self._blocked_at:
            return False
        hits, idle_hits = self.cache.count_hits(seq.tokens) if self._options.prefix_cache else (0, 0)
        slots, size = self._slots, self.limits.page_size
        promised = np.maximum(-(-(self.table.known[slots] + 1) // size) - self.table.num_pages[slots], 0).sum()
        fits = len(seq.tokens) // size + 1 - hits + len(self.running) <= available - idle_hits - int(promised)
        self._blocked_at = -1 if fits else available
        return fits

    def _start(self, seq: Sequence) -> None:
        seq.scheduled = seq.scheduled or time.monotonic()
        pages: list[int] = []
        seq.chain = PrefixChain()
        if self._options.prefix_cache:
            hit = self.cache.match(seq.tokens)
            pages, seq.chain = hit.pages, hit.chain
            seq.cached_tokens += len(pages) * self.limits.page_size
        plain = seq.text is None and not seq.rules.stop_ids and seq.rules.eos_ids == self._eos_ids
        self.table.move_in(seq, pages, default_eos=plain)
        self.running.append(seq)
        self.running.sort(key=lambda one: one.place)
        self._renew_slots()

    def _preempt(self, seq: Sequence) -> None:
        """Take all pages from a sequence and let it wait; what it said is kept, and computed again later."""
        self.release(self.remove(seq))
        seq.preemptions += 1
        self.preemptions += 1
        self.add(seq)

    def _renew_slots(self) -> None:
        self._slots = np.array([seq.slot for seq in self.running], np.int64)
        self._blocked_at = -1

    def _share_tokens(self, auto_drafts: int, most: int) -> tuple[Int64, Int64, Int64]:
        """Per running row: tokens to run (0: not in this step), drafts among them, and why a decode row has none."""
        table, slots = self.table, self._slots
        need = table.known[slots] - table.context[slots]
        decode = need == 1
        num_decode = int(np.count_nonzero(decode))
        wanted = table.num_drafts[slots] * decode
        allowed = np.minimum(wanted, np.where(table.mode[slots] == 2, auto_drafts, most))
        room = self.max_tokens - num_decode
        if num_decode == slots.size:
            drafts = _fit_drafts(allowed, room)
            query = drafts + 1
        else:
            prompts = np.where(decode, 0, np.minimum(need, self._options.max_chunk or self.max_tokens))
            drafts = _fit_drafts(allowed, room - min(int(prompts.sum()), room // 2))
            left = room - int(drafts.sum())
            chunks = np.minimum(np.maximum(left - (prompts.cumsum() - prompts), 0), prompts)
            query = np.where(decode, 1 + drafts, chunks)
        reasons = table.no_drafts[slots]
        if not drafts.all():
            lost = int(NoDrafts.POLICY if most == self.limits.num_drafts else NoDrafts.PAGES)
            reasons = np.where((wanted > 0) & (allowed == 0), lost, reasons)
            reasons = np.where((allowed > 0) & (drafts == 0), int(NoDrafts.BUDGET), reasons)
        return query, drafts, reasons

    def _pages_needed(self, query: Int64) -> Int64:
        table, slots = self.table, self._slots
        ends = (table.context[slots] + query) * (query > 0)
        needed: Int64 = np.maximum(-(-ends // self.limits.page_size) - table.num_pages[slots], 0)
        return needed

    def _give_pages(self, slots: Int64, needed: Int64) -> None:
        table = self.table
        rows = needed.nonzero()[0]
        slots, counts = slots[rows], needed[rows]
        starts = counts.cumsum() - counts
        places = (table.num_pages[slots] - starts).repeat(counts) + np.arange(int(counts.sum()))
        table.pages[slots.repeat(counts), places] = self.allocator.allocate(places.size)
        table.num_pages[slots] += counts

    def _finish_plan(self, query: Int64, drafts: Int64, reasons: Int64, draft_next: bool) -> StepPlan:
        table, slots = self.table, self._slots
        known, context = table.known[slots], table.context[slots]
        last = context + query - drafts == known
        modes = table.mode[slots] > 0 if draft_next else table.mode[slots] == 1
        room = (table.end[slots] - known >= 3) & (known + 1 < self.limits.draft_max_position)
        draft = last & table.drafter[slots] & modes & room
        verify = (drafts + 1) * last
        bare = (known - context == 1) & (drafts == 0)
        if query.all():
            return StepPlan(slots, query, drafts, verify, draft, bare, reasons)
        rows = query > 0
        return StepPlan(slots[rows], query[rows], drafts[rows], verify[rows], draft[rows], bare[rows], reasons[rows])


def _fit_drafts(drafts: Int64, room: int) -> Int64:
    """Drafts cut to the largest equal number a row that fits the room."""
    if int(drafts.sum()) <= room:
        return drafts
    most = int(drafts.max())
    while most and int(np.minimum(drafts, most).sum()) > room:
        most -= 1
    return np.minimum(drafts, most)
