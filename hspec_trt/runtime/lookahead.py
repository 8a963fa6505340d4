# SPDX-License-Identifier: Apache-2.0
"""Starts the next decode step before the last one was read, where all that it needs is on the device already.

What an answer keeps is decided when a step is read, as ever: rows that ended meanwhile are dropped from the step that
went ahead, and the others are committed as if it had been planned then. It owns when that is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from hspec_trt.runtime.request import Sequence
from hspec_trt.runtime.scheduler import Scheduler, StepPlan
from hspec_trt.runtime.session import FollowingSession, Pending, Session, StepInputs, StepOutputs
from hspec_trt.runtime.shaping import ShapedStep


@dataclass(frozen=True)
class Flight:
    """A step that is planned or under way.

    Attributes:
        shaped: what its rows want of their logits.
        outputs: waits for it.
        whole: its plan has every row that the session runs; rows that ended while it went ahead are not in the plan.
    """

    plan: StepPlan
    shaped: ShapedStep | None
    outputs: Callable[[], StepOutputs]
    whole: bool = True


class Lookahead:
    """Steps under way on one session, at most one ahead of the one that is read."""

    def __init__(self, session: Session, scheduler: Scheduler) -> None:
        self._session = session
        self._following = session if isinstance(session, FollowingSession) else None
        self._scheduler = scheduler
        self._ahead: tuple[StepPlan, list[Sequence], Pending] | None = None
        self.followed = 0

    def start(self, plan: StepPlan, shaped: ShapedStep | None, inputs: StepInputs) -> Flight:
        """Start a planned step; raises as `Session.step` now or when its outputs are asked for."""
        if self._following is None:
            return Flight(plan, shaped, lambda: self._session.step(inputs))
        return Flight(plan, shaped, self._following.submit(inputs).wait)

    def drop(self) -> None:
        """Forget the step that went ahead."""
        self._ahead = None

    def take(self) -> Flight | None:
        """The step that went ahead, of the rows that are still there; None where there is none."""
        if self._ahead is None:
            return None
        (plan, sequences, pending), self._ahead = self._ahead, None
        sequences_now = self._scheduler.table.sequences
        alive = np.array([sequences_now[slot] is seq for slot, seq in zip(plan.slots, sequences, strict=True)])
        if not alive.any():
            return None
        rows = _rows_of_plan(plan, alive)
        return Flight(rows, None, lambda: _rows_of_outputs(pending.wait(), alive), whole=bool(alive.all()))

    def follow(self, flight: Flight) -> bool:
        """Start the step after one that `can_follow`; False, and nothing started, where there are too few pages."""
        if self._following is None:
            return False
        plan, table = flight.plan, self._scheduler.table
        size, width = self._scheduler.limits.page_size, self._scheduler.limits.num_drafts + 1
        most_context = table.context[plan.slots] + plan.query_lens
        ends = most_context + width
        if not self._scheduler.reserve(plan.slots, ends):
            return False
        pages = table.pages[plan.slots, : -(-int(ends.max()) // size)]
        pending = self._following.follow(pages, most_context.astype(np.int32))
        sequences = [table.sequence(slot) for slot in plan.slots.tolist()]
        self._ahead = (_next_plan(plan, width), sequences, pending)
        self.followed += 1
        return True

    def can_follow(self, flight: Flight) -> bool:
        """Whether every row of the step will carry all G drafts in the next one, whatever is accepted now.

        Nothing waits for a row, every running row (and no other) is in the step and was drafted for by the drafter
        alone, and neither its length nor the drafter's positions come within reach.
        """
        plan, scheduler = flight.plan, self._scheduler
        limits, table = scheduler.limits, scheduler.table
        if self._following is None or "feedback" not in limits.extensions or not flight.whole:
            return False
        slots, drafts = plan.slots, limits.num_drafts
        full = slots.size * (drafts + 1) <= scheduler.max_tokens and slots.size == len(scheduler.running)
        if flight.shaped or scheduler.num_waiting or not full or not plan.draft.all() or table.lookup[slots].any():
            return False
        most_known = table.known[slots] + plan.verify_lens
        far_from_end = table.end[slots] - most_known > max(drafts, 2)
        in_position = limits.draft_max_position - most_known >= max(drafts, 2)
        wants_all = (table.most_drafts[slots] >= drafts) & ~table.shaped[slots]
        return bool((far_from_end & in_position & wants_all).all())


def _next_plan(plan: StepPlan, width: int) -> StepPlan:
    full = np.full_like(plan.query_lens, width)
    none = np.zeros_like(plan.bare)
    return StepPlan(plan.slots, full, full - 1, full, ~none, none, np.zeros_like(plan.reasons))


def _rows_of_plan(plan: StepPlan, rows: NDArray[np.bool_]) -> StepPlan:
    return plan if rows.all() else StepPlan(**{item.name: getattr(plan, item.name)[rows] for item in fields(plan)})


def _rows_of_outputs(outputs: StepOutputs, rows: NDArray[np.bool_]) -> StepOutputs:
    """Outputs of some rows of a step that drafted for each."""
    if rows.all():
        return outputs
    given = {item.name: getattr(outputs, item.name) for item in fields(outputs)}
    kept = {name: values[rows] for name, values in given.items() if values is not None and not name.startswith("top_")}
    return replace(outputs, **kept)
