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
from hspec_trt.runtime.lookahead import Flight, Lookahead
from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.packing import pack
from hspec_trt.runtime.record import Recorder, StepTimes
from hspec_trt.runtime.request import NO_SLOT, Sequence, Update
from hspec_trt.runtime.scheduler import Scheduler, StepPlan
from hspec_trt.runtime.session import Session, StepOutputs
from hspec_trt.runtime.shaping import ShapedStep, shape_step, take_tops
from hspec_trt.runtime.stats import RuntimeStats
from hspec_trt.runtime.step_costs import StepSize
from hspec_trt.runtime.stop import FinishReason
from hspec_trt.runtime.table import DRAFT_MODES, at_least
from hspec_trt.runtime.trace import Trace


class EngineCore:
    """A session with a scheduler before it.

    Args:
        session: with its pages allocated.
        eos_ids: the model's end tokens.
        decoder: needed for stop strings and bad words; None where the engine has no tokenizer.
        guides: makes grammars for guided decoding.
        trace: where the steps are written down; None for nowhere.
    """

    def __init__(
        self,
        session: Session,
        *,
        eos_ids: frozenset[int] = frozenset(),
        decoder: Codec | None = None,
        guides: GuideMaker | None = None,
        options: SchedulerOptions | None = None,
        trace: Trace | None = None,
    ) -> None:
        limits = session.limits
        self.session = session
        options = options or SchedulerOptions()
        self._prefix_cache = options.prefix_cache
        self.scheduler = Scheduler(session.limits, session.num_pages, options, eos_ids)
        self.recorder = Recorder(self.scheduler, trace)
        self.policy = DraftPolicy(session.limits.num_drafts, session.limits.has_drafter)
        self._choice: DraftChoice | None = None  # of the next step, where it is made already
        self.lookahead = Lookahead(session, self.scheduler)
        self._read_at = 0.0
        self._committer = Committer(self.scheduler.table, eos_ids)
        guides = guides or GuideMaker(None, limits.vocab_size, sorted(eos_ids))
        self.make = Intake(limits, self.scheduler.longest, eos_ids, decoder, guides).make

    @property
    def stats(self) -> RuntimeStats:
        """Counters since the start."""
        return self.recorder.stats

    def add(self, seq: Sequence) -> None:
        """Put a sequence in the line."""
        self.scheduler.add(seq)

    def cancel(self, seq: Sequence) -> None:
        """End a sequence now; nothing happens where it has ended already."""
        if seq.finish is None:
            self._end(seq, "cancelled")

    def close(self) -> None:
        """Give back what the loop holds besides memory, once it ended."""
        if self.recorder.trace is not None:
            self.recorder.trace.close()

    def fail_all(self, error: HspecError) -> None:
        """End everything that runs or waits."""
        for seq in [*self.scheduler.running, *self.scheduler.waiting()]:
            self._end(seq, "error", error)

    @property
    def is_idle(self) -> bool:
        """True where there is nothing to do."""
        return self.scheduler.is_idle

    def step(self) -> bool:
        """Run one step; False where there was nothing to run. The next one may have been started when it returns."""
        begin = time.monotonic()
        flight = self.lookahead.take()
        plan, shaped = (flight.plan, flight.shaped) if flight else self._plan(self._choose())
        if plan is None:
            return False
        if flight is not None:
            begin = self._read_at  # the device began it when the last one was done
        start = begin
        try:
            if flight is None:
                inputs = pack(plan, self.scheduler.table, shaped.extras if shaped else None)
                start = time.monotonic()
                flight = self.lookahead.start(plan, shaped, inputs)
            self._look_ahead(flight)
            outputs = flight.outputs()
        except HspecError as error:
            self.lookahead.drop()
            self._fail_rows(plan, error)
            return True
        self._read_at = time.monotonic()
        times = StepTimes(begin, start, self._read_at)
        committed = self._committer.commit(plan, outputs)
        self.recorder.step(plan, committed, times)
        self._teach_policy(plan, committed, times.end - start)
        self._enter_pages(plan, outputs)
        if shaped is not None:
            take_tops(shaped, plan, self.scheduler.table, outputs, committed.kept)
        self._tell(plan, outputs, committed)
        self.recorder.trace_step(plan, committed, times)
        return True

    def _choose(self) -> DraftChoice:
        choice, self._choice = self._choice, None
        return choice or self.policy.choose(len(self.scheduler.running))

    def _look_ahead(self, flight: Flight) -> None:
        """Start the step after this one, where it can be known and the policy would have it full."""
        if not self.lookahead.can_follow(flight):
            return
        choice = self._choose()
        full = choice.draft and choice.verify >= self.session.limits.num_drafts
        any_auto = (self.scheduler.table.mode[flight.plan.slots] == DRAFT_MODES["auto"]).any()
        if (any_auto and not full) or not self.lookahead.follow(flight):
            self._choice = choice

    def _plan(self, choice: DraftChoice) -> tuple[StepPlan | None, ShapedStep | None]:
        """The next step's rows and what they want of their logits; answers whose grammar gives up end here."""
        while True:
            plan = self.scheduler.plan(choice.verify, choice.draft)
            shaped = shape_step(plan, self.scheduler.table) if plan else None
            if shaped is None or not shaped.failed:
                return plan, shaped
            for seq, error in shaped.failed:
                self._end(seq, "error", error)

    def _teach_policy(self, plan: StepPlan, committed: Committed, seconds: float) -> None:
        drafts = int(plan.num_drafts.sum())
        if drafts:
            bins = self.session.limits.num_drafts + 1
            offered, accepted = (np.bincount(row, minlength=bins) for row in (plan.num_drafts, committed.accepted))
            self.policy.observe_acceptance(at_least(offered), at_least(accepted))
        rows, tokens = int(np.count_nonzero(plan.verify_lens)), int(plan.query_lens.sum())
        drafted = int(np.count_nonzero(plan.draft))
        self.policy.observe_step(StepSize(rows, drafts, drafted, tokens - rows - drafts), seconds)

    def _enter_pages(self, plan: StepPlan, outputs: StepOutputs) -> None:
        """Full pages become findable once a finite row has read them."""
        if not self._prefix_cache:
            return
        table, slots = self.scheduler.table, plan.slots
        full = table.context[slots] // self.session.limits.page_size > table.entered[slots]
        if not full.any():
            return
        for slot in slots[full & (plan.verify_lens > 0) & outputs.finite].tolist():
            seq, context = table.sequence(slot), int(table.context[slot])
            self.scheduler.cache.enter(seq.chain, table.tokens[slot, :context], table.pages[slot])
            table.entered[slot] = seq.chain.num_pages

    def _tell(self, plan: StepPlan, outputs: StepOutputs, committed: Committed) -> None:
        table, slots, kept = self.scheduler.table, plan.slots, committed.kept
        for slot in slots[committed.first].tolist():
            self.recorder.first_token(table.sequence(slot))
        ended, streaming = committed.ending > 0, table.streaming[slots]
        if streaming.any():
            streams = (streaming & (kept > 0) & ~ended).nonzero()[0].tolist()
            ids, logprobs = outputs.emitted_ids.tolist(), outputs.emitted_logprobs.tolist()
            slot_of, count_of = slots.tolist(), kept.tolist()
            for row in streams:
                seq, count = table.sequence(slot_of[row]), count_of[row]
                tops = seq.shaper.tops[seq.told : seq.told + count] if seq.shaper.num_top else ()
                seq.told += count
                seq.sink(Update(ids[row][:count], logprobs[row][:count], top_logprobs=tops))
        for row in ended.nonzero()[0].tolist() if ended.any() else ():
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
        self.recorder.answer(seq)
        seq.sink(update)

    def _scrub(self, pages: list[int]) -> None:
        """Zero what a failed row may have written: its own pages and the null page, never those found good."""
        own = [page for page in pages if not self.scheduler.allocator.is_kept(page)]
        self.session.scrub(np.array([NULL_PAGE, *own], np.int32))

    def _fail_rows(self, plan: StepPlan, error: HspecError) -> None:
        self.stats.failed_steps += 1
        for slot in plan.slots.tolist():
            self._end(self.scheduler.table.sequence(slot), "error", error)
