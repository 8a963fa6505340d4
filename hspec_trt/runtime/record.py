# SPDX-License-Identifier: Apache-2.0
"""Puts what the step loop did into counters and, where one is kept, into a trace. It decides nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hspec_trt.runtime.commit import Committed
from hspec_trt.runtime.request import Sequence
from hspec_trt.runtime.scheduler import Scheduler, StepPlan
from hspec_trt.runtime.stats import RuntimeStats
from hspec_trt.runtime.trace import Arguments, Span, Trace


@dataclass(frozen=True)
class StepTimes:
    """When a step was planned, entered the session and left it, seconds of ``time.monotonic``."""

    begin: float
    start: float
    end: float


class Recorder:
    """The figures of one step loop.

    Args:
        trace: None keeps counters only.
    """

    def __init__(self, scheduler: Scheduler, trace: Trace | None) -> None:
        self.stats = RuntimeStats()
        self.trace = trace
        self._scheduler = scheduler

    def step(self, plan: StepPlan, committed: Committed, times: StepTimes) -> None:
        """Count a step, after its tokens were committed and before answers that ended leave their rows."""
        stats, table = self.stats, self._scheduler.table
        stats.steps += 1
        stats.step_seconds += times.end - times.start
        stats.prompt_tokens += _prompt_tokens(plan, committed)
        stats.new_tokens += int(committed.kept.sum())
        stats.step_tokens.observe(int(plan.query_lens.sum()))
        slots = plan.slots[committed.kept > 0]
        before = table.emitted_at[slots]
        stats.inter_token.observe_all(times.end - before[before > 0])
        table.emitted_at[slots] = times.end
        rows = committed.counted
        lengths = (table.known[plan.slots] - committed.kept)[rows]
        stats.by_length.add(lengths, committed.kept[rows], plan.num_drafts[rows], committed.accepted[rows])

    def first_token(self, seq: Sequence) -> None:
        """Note an answer's first token, once."""
        if not seq.first_token:
            seq.first_token = time.monotonic()
            self.stats.first_token.observe(seq.first_token - seq.arrived)

    def answer(self, seq: Sequence) -> None:
        """Count an answer that ended and has left its row."""
        stats = self.stats
        stats.finished[str(seq.finish)] += 1
        stats.cached_tokens += seq.cached_tokens
        stats.preemptions += seq.preemptions
        stats.drafts.add(seq.drafts)
        if self.trace is not None:
            figures: Arguments = {
                "prompt_tokens": seq.prompt_len,
                "new_tokens": seq.tokens.size - seq.prompt_len,
                "finish_reason": str(seq.finish),
                "accepted_length": round(seq.drafts.accepted_length, 3),
                "cached_tokens": seq.cached_tokens,
                "preemptions": seq.preemptions,
            }
            self.trace.answer(seq.number, Span(f"answer {seq.number}", seq.arrived, time.monotonic(), figures))

    def trace_step(self, plan: StepPlan, committed: Committed, times: StepTimes) -> None:
        """Write a step into the trace, once everybody was told."""
        if self.trace is None:
            return
        last, scheduler = time.monotonic(), self._scheduler
        figures: Arguments = {
            "step": self.stats.steps,
            "rows": plan.slots.size,
            "tokens": int(plan.query_lens.sum()),
            "prompt_tokens": _prompt_tokens(plan, committed),
            "drafts": int(plan.num_drafts.sum()),
            "accepted": int(committed.accepted.sum()),
            "emitted": int(committed.kept.sum()),
            "drafted_rows": int(plan.draft.sum()),
        }
        spans = [
            Span("step", times.begin, last, figures),
            Span("plan", times.begin, times.start),
            Span("session", times.start, times.end, figures),
            Span("commit", times.end, last),
        ]
        counters = {
            "answers": {"running": len(scheduler.running), "waiting": scheduler.num_waiting},
            "pages": {"in use": scheduler.allocator.in_use},
        }
        self.trace.step(spans, counters)


def _prompt_tokens(plan: StepPlan, committed: Committed) -> int:
    """Tokens of prompts that a step ran; the last of a prompt is the one whose logits give the first new token."""
    last = (committed.kept > 0) & ~committed.counted
    return int((plan.query_lens - plan.verify_lens).sum() + last.sum())
