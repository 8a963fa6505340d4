# SPDX-License-Identifier: Apache-2.0
"""A session that breaks now and then, and counts whom that concerns: for the soak's fault run."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from hspec_trt.errors import RequestError
from hspec_trt.runtime.ort_session import OrtSession
from hspec_trt.runtime.pages import PageAllocator
from hspec_trt.runtime.session import Limits, StepInputs, StepOutputs

RAISE, POISON, SHORTAGE = "a step raised", "a row became non-finite", "pages ran short"


class FaultySession:
    """Runs a session and, in one step of so many, does what can go wrong.

    raise     the backend fails after it wrote half of its pages full of NaN: every row of the step ends with R302
    poison    NaN lies in the page that one row is writing, so that its logits are not finite: it ends with R301
    shortage  somebody holds all pages but those of one request for some steps: rows are preempted, nobody fails

    Attributes:
        events: how often each happened.
        concerned: answers that must end with each code.
    """

    def __init__(self, session: OrtSession, one_in: int = 60) -> None:
        self._session, self._one_in = session, one_in
        self._rng = random.Random(1)
        self.active = False
        self.allocator: PageAllocator | None = None
        self.events: Counter[str] = Counter()
        self.concerned: Counter[str] = Counter()
        self._held: list[int] = []
        self._hold_for = 0

    @property
    def limits(self) -> Limits:
        """What the engine can take."""
        return self._session.limits

    @property
    def num_pages(self) -> int:
        """Pages of the pool."""
        return self._session.num_pages

    def allocate(self, num_pages: int) -> None:
        """Make the pools."""
        self._session.allocate(num_pages)

    def scrub(self, pages: NDArray[np.int32]) -> None:
        """Zero pages."""
        self._session.scrub(pages)

    def step(self, inputs: StepInputs) -> StepOutputs:
        """Run one step, or break."""
        self._hold_for -= 1
        if self._held and self._hold_for <= 0:
            self._give_back()
        if not self.active or self._rng.random() * self._one_in >= 1.0:
            return self._session.step(inputs)
        kind = self._rng.choice([RAISE, POISON, SHORTAGE])
        if kind == RAISE:
            return self._fail(inputs)
        if kind == SHORTAGE:
            self._take_pages()
            return self._session.step(inputs)
        return self._poison(inputs)

    def _fail(self, inputs: StepInputs) -> StepOutputs:
        for row in range(inputs.context_lens.size):
            self._fill(self._written_page(inputs, row), np.nan)
        self.events[RAISE] += 1
        self.concerned["R302"] += inputs.context_lens.size
        raise RequestError("R302", "the step failed: a fault of the soak")

    def _poison(self, inputs: StepInputs) -> StepOutputs:
        size, lens = self.limits.page_size, np.diff(inputs.cu_query_lens)
        overwritten = (inputs.context_lens % size == 0) & (lens >= size)  # no NaN would be left of its page
        rows = np.flatnonzero((np.diff(inputs.cu_verify_lens) > 0) & ~overwritten).tolist()
        if not rows:
            return self._session.step(inputs)
        row = self._rng.choice(rows)
        self._fill(self._written_page(inputs, row), np.nan)
        outputs = self._session.step(inputs)
        bad = np.flatnonzero(~outputs.finite).tolist()
        if bad != [row]:
            place = f"{inputs.context_lens[row]} tokens and {lens[row]} new ones"
            raise AssertionError(f"row {row} with {place} was poisoned, rows {bad} are not finite")
        self.events[POISON] += 1
        self.concerned["R301"] += 1
        return outputs

    def _written_page(self, inputs: StepInputs, row: int) -> int:
        """The page of a row's first new token; never a page that is shared, since those are full."""
        return int(inputs.page_table[row, int(inputs.context_lens[row]) // self.limits.page_size])

    def _fill(self, page: int, value: float) -> None:
        for pool in self._session._pages:
            pool[page] = value

    def _take_pages(self) -> None:
        if self._held or self.allocator is None:
            return
        spare = self.allocator.num_pages - 1 - self.limits.max_pages_per_row
        self._held = self.allocator.allocate(min(self.allocator.available, spare))
        self._hold_for = self._rng.randint(5, 40)
        self.events[SHORTAGE] += 1

    def _give_back(self) -> None:
        assert self.allocator is not None
        self.allocator.release(self._held)
        self._held = []

    def quiet(self) -> None:
        """No more faults; what is held goes back. Call it while nothing runs."""
        self.active = False
        if self._held:
            self._give_back()
