# SPDX-License-Identifier: Apache-2.0
"""The step loop: plan, pack, run, commit, tell. One thread owns it; `hspec_trt.runtime.worker` brings the thread."""

from __future__ import annotations

import time

import numpy as np

from hspec_trt.contract import NULL_PAGE
from hspec_trt.errors import HspecError, RequestError
from hspec_trt.runtime.commit import REASONS, Committed, Committer
from hspec_trt.runtime.detokenizer import Codec
from hspec_trt.runtime.drafting import DraftChoice, DraftPolicy
from hspec_trt.runtime.guided import GuideMaker
from hspec_trt.runtime.intake import Intake
from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.packing import pack
from hspec_trt.runtime.request import NO_SLOT, Sequence, Update
from hspec_trt.runtime.scheduler import Scheduler, StepPlan
from hspec_trt.runtime.session import Session, StepOutputs
from hspec_trt.runtime.shaping import ShapedStep, shape_step, take_tops
from hspec_trt.runtime.stats import RuntimeStats
from hspec_trt.runtime.stop import FinishReason


class EngineCore:
    """A session with a scheduler before it.

    Args:
        session: with its pages allocated.
        eos_ids: the model's end tokens.
        decoder: needed for stop strings and bad words; None where the engine has no tokenizer.
        guides: makes grammars for guided decoding.
    """

    def __init__(
        self,
        session: Session,
        *,
        eos_ids: frozenset[int] = frozenset(),
        decoder: Codec | None = None,
        guides: GuideMaker | None = None,
        options: SchedulerOptions | None = None,
    ) -> None:
        limits = session.limits
        self.session = session
        options = options or SchedulerOptions()
        self._prefix_cache = options.prefix_cache
        self.scheduler = Scheduler(session.limits, session.num_pages, options, eos_ids)
        self.stats = RuntimeStats()
        self.policy = DraftPolicy(session.limits.num_drafts, session.limits.has_drafter)
        self._committer = Committer(self.scheduler.table, eos_ids)
        guides = guides or GuideMaker(None, limits.vocab_size, sorted(eos_ids))
        self.make = Intake(limits, self.scheduler.longest, eos_ids, decoder, guides).make

    def add(self, seq: Sequence) -> None:
        """Put a sequence in the line."""
        self.scheduler.add(seq)

    def cancel(self, seq: Sequence) -> None:
        """End a sequence now; nothing happens where it has ended already."""
        if seq.finish is None:
            self._end(seq, "cancelled")

    def fail_all(self, error: HspecError) -> None:
        """End everything that runs or waits."""
        for seq in [*self.scheduler.running, *self.scheduler.waiting()]:
            self._end(seq, "error", error)

    @property
    def is_idle(self) -> bool:
        """True where there is nothing to do."""
        return self.scheduler.is_idle

    def step(self) -> bool:
        """Run one step; False where there was nothing to run."""
        auto_rows = len(self.scheduler.running)
        choice = self.policy.choose(auto_rows)
        plan, shaped = self._plan(choice)
        if plan is None:
            return False
        inputs = pack(plan, self.scheduler.table, shaped.extras if shaped else None)
        start = time.perf_counter()
        try:
            outputs = self.session.step(inputs)
        except HspecError as error:
            self._fail_rows(plan, error)
            return True
        seconds = time.perf_counter() - start
        committed = self._committer.commit(plan, outputs)
        self._observe(plan, committed, seconds)
        self._enter_pages(plan, outputs)
        if shaped is not None:
            take_tops(shaped, plan, self.scheduler.table, outputs, committed.kept)
        self._tell(plan, outputs, committed)
        return True

    def _plan(self, choice: DraftChoice) -> tuple[StepPlan | None, ShapedStep | None]:
        """The next step's rows and what they want of their logits; answers whose grammar gives up end here."""
        while True:
            plan = self.scheduler.plan(choice.verify, choice.draft)
            shaped = shape_step(plan, self.scheduler.table) if plan else None
            if shaped is None or not shaped.failed:
                return plan, shaped
            for seq, error in shaped.failed:
                self._end(seq, "error", error)

    def _observe(self, plan: StepPlan, committed: Committed, seconds: float) -> None:
        stats, verified = self.stats, plan.verify_lens > 0
        stats.steps += 1
        stats.step_seconds += seconds
        stats.prompt_tokens += int((plan.query_lens - plan.verify_lens).sum())
        stats.new_tokens += int(committed.kept.sum())
        drafts = plan.num_drafts
        total = int(drafts.sum())
        if total:
            columns = np.arange(self.session.limits.num_drafts)[:, None]
            self.policy.observe_acceptance((columns < drafts).sum(axis=1), (columns < committed.accepted).sum(axis=1))
        decode_only = bool(verified.all()) and bool((plan.query_lens == plan.verify_lens).all())
        drafted = int(plan.draft.sum())
        if decode_only and drafted in (0, plan.slots.size):
            self.policy.observe_cost(plan.slots.size, total, drafted > 0, seconds)

    def _enter_pages(self, plan: StepPlan, outputs: StepOutputs) -> None:
        """Full pages become findable once a finite row has read them."""
        if not self._prefix_cache:
            return
        table = self.scheduler.table
        full = table.context[plan.slots] // self.session.limits.page_size
        rows = (full > table.entered[plan.slots]) & (plan.verify_lens > 0) & outputs.finite
        for row in np.flatnonzero(rows).tolist():
            slot = int(plan.slots[row])
            seq, context = table.sequence(slot), int(table.context[slot])
            self.scheduler.cache.enter(seq.chain, table.tokens[slot, :context], table.pages[slot])
            table.entered[slot] = seq.chain.num_pages

    def _tell(self, plan: StepPlan, outputs: StepOutputs, committed: Committed) -> None:
        table, slots, kept = self.scheduler.table, plan.slots, committed.kept
        for row in np.flatnonzero((kept > 0) & (table.steps[slots] == 1)).tolist():
            seq = table.sequence(int(slots[row]))
            seq.first_token = seq.first_token or time.monotonic()
        ended = committed.ending > 0
        streams = np.flatnonzero((kept > 0) & table.streaming[slots] & ~ended).tolist()
        if streams:
            ids, logprobs = outputs.emitted_ids.tolist(), outputs.emitted_logprobs.tolist()
            slot_of, count_of = slots.tolist(), kept.tolist()
            for row in streams:
                seq, count = table.sequence(slot_of[row]), count_of[row]
                tops = seq.shaper.tops[seq.told : seq.told + count]
                seq.told += count
                seq.sink(Update(ids[row][:count], logprobs[row][:count], top_logprobs=tops))
        for row in np.flatnonzero(ended).tolist():
            seq, reason = table.sequence(int(slots[row])), REASONS[int(committed.ending[row])]
            self._end(seq, reason or "error", self._non_finite(seq) if reason == "error" else None)

    def _non_finite(self, seq: Sequence) -> RequestError:
        position = int(self.scheduler.table.known[seq.slot])
        where = f"request {seq.number} ended, engine healthy"
        return RequestError("R301", f"non-finite target logits at position {position}", where=where)

    def _news(self, seq: Sequence) -> Update:
        """Output of a sequence without a slot that the sink has not seen."""
        ids, logprobs = seq.tokens[seq.prompt_len + seq.told :], seq.logprobs[seq.told :]
        tops = seq.shaper.tops[seq.told :]
        seq.told += ids.size
        return Update(ids.tolist(), logprobs.tolist(), top_logprobs=tops)

    def _end(self, seq: Sequence, reason: FinishReason, error: HspecError | None = None) -> None:
        """The one place where a sequence ends: frees its slot and pages, and sends the last update."""
        seq.finish = reason
        if seq.slot == NO_SLOT:
            self.scheduler.drop_waiting(seq)
        else:
            pages = self.scheduler.remove(seq)
            if error is not None:
                self._scrub(pages)
            self.scheduler.release(pages)
        update = self._news(seq)
        update.finish, update.error, update.drafts, update.timing = reason, error, seq.drafts, seq.timing()
        self.stats.finished[reason] += 1
        self.stats.cached_tokens += seq.cached_tokens
        self.stats.preemptions += seq.preemptions
        self.stats.drafts.add(seq.drafts)
        seq.sink(update)

    def _scrub(self, pages: list[int]) -> None:
        """Zero what a failed row may have written: its own pages and the null page, never those found good."""
        own = [page for page in pages if not self.scheduler.allocator.is_kept(page)]
        self.session.scrub(np.array([NULL_PAGE, *own], np.int32))

    def _fail_rows(self, plan: StepPlan, error: HspecError) -> None:
        self.stats.failed_steps += 1
        for slot in plan.slots.tolist():
            self._end(self.scheduler.table.sequence(slot), "error", error)
