# SPDX-License-Identifier: Apache-2.0
"""A state machine over the step loop: requests join, leave, are preempted, cancelled and resumed in any order.

What the loop runs on and what an answer must be is a `World`'s business; the machine knows only the order of events.
"""

from __future__ import annotations

import random
from typing import Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.step_costs import StepSize
from tests.unit.runtime.harness import Answer, check_empty, drain


class World(Protocol):
    """Where the traffic takes place."""

    def make_core(self, spare_pages: int, options: SchedulerOptions) -> EngineCore:
        """A step loop with pages for one request of full length, and so many more."""

    def ask(self, core: EngineCore, rng: random.Random) -> Answer:
        """Put a request in the line."""

    def check(self, answer: Answer, *, cancelled: bool) -> None:
        """Compare an answer that has ended with what was said alone."""


def _time_by_size(core: EngineCore) -> None:
    """Tell the draft policy times that follow from the steps' sizes: a run then depends on its events alone."""
    observe = core.policy.observe_step

    def observe_step(step: StepSize, seconds: float) -> None:
        observe(step, 1e-3 + 1e-4 * (step.rows + step.drafts + step.drafted + step.prompt_tokens))

    core.policy.observe_step = observe_step  # type: ignore[method-assign]


class TrafficMachine(RuleBasedStateMachine):
    """Events of one step loop.

    Args:
        cached: whether the prefix cache is on; None for either.
    """

    def __init__(self, world: World, *, cached: bool | None = None) -> None:
        super().__init__()
        self.world, self.cached = world, cached
        self.core: EngineCore | None = None
        self.live: list[Answer] = []
        self.cancelled: set[int] = set()
        self.held: list[int] = []

    @precondition(lambda self: self.core is None)
    @rule(spare=st.integers(0, 40), cache=st.booleans(), chunk=st.sampled_from([None, 3, 16, 23]))
    def load(self, spare: int, cache: bool, chunk: int | None) -> None:
        cached = cache if self.cached is None else self.cached
        self.core = self.world.make_core(spare, SchedulerOptions(prefix_cache=cached, max_chunk=chunk))
        _time_by_size(self.core)

    @precondition(lambda self: self.core is not None)
    @rule(seed=st.integers(0, 2**32), count=st.integers(1, 4))
    def join(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        self.live += [self.world.ask(self.core, rng) for _ in range(count)]  # type: ignore[arg-type]

    @precondition(lambda self: self.live)
    @rule(pick=st.integers(0, 99))
    def cancel(self, pick: int) -> None:
        answer = self.live[pick % len(self.live)]
        self.cancelled.add(id(answer))
        self.core.cancel(answer.sequence)  # type: ignore[union-attr, arg-type]

    @precondition(lambda self: self.core is not None)
    @rule(count=st.integers(1, 8))
    def run_steps(self, count: int) -> None:
        for _ in range(count):
            self.core.step()  # type: ignore[union-attr]

    @precondition(lambda self: self.core is not None and not self.held)
    @rule()
    def pages_run_short(self) -> None:
        """Somebody takes all pages but those for one request: running rows are preempted, and resume."""
        scheduler = self.core.scheduler  # type: ignore[union-attr]
        allocator, needed = scheduler.allocator, scheduler.limits.max_pages_per_row
        spare = allocator.num_pages - 1 - needed
        self.held = allocator.allocate(min(allocator.available, spare))

    @precondition(lambda self: self.held)
    @rule()
    def pages_come_back(self) -> None:
        self.core.scheduler.release(self.held)  # type: ignore[union-attr]
        self.held = []

    @invariant()
    def ended_answers_are_right(self) -> None:
        for answer in [a for a in self.live if a.updates and a.updates[-1].finish]:
            self.world.check(answer, cancelled=id(answer) in self.cancelled)
            self.live.remove(answer)

    def teardown(self) -> None:
        if self.core is None:
            return
        drain(self.core)
        self.ended_answers_are_right()
        assert not self.live
        if self.held:
            self.pages_come_back()
        check_empty(self.core)
