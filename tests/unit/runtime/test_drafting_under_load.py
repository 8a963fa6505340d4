# SPDX-License-Identifier: Apache-2.0
"""Requests that come and go: `auto` is never much slower than off, and near the better of on and off."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from hspec_trt.config.sampling import Drafting, SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.drafting import DraftPolicy
from hspec_trt.runtime.session import Limits, StepInputs, StepOutputs
from hspec_trt.runtime.step_costs import StepSize

G = 7
LIMITS = Limits(1000, G, 16, 1, 32, 256, 512, True, 512)


@dataclass(frozen=True)
class Machine:
    """Seconds of a step: at least `first`, so much a token beyond `free` ones, and for a drafter pass and its rows."""

    first: float
    token: float
    free: int
    drafter: float
    drafter_row: float

    def seconds(self, tokens: int, drafted: int) -> float:
        drafter = self.drafter + self.drafter_row * drafted if drafted else 0.0
        return self.first + self.token * max(tokens - self.free, 0) + drafter


CPU = Machine(first=0.030, token=0.004, free=0, drafter=0.010, drafter_row=0.006)
GPU = Machine(first=0.0020, token=0.00002, free=48, drafter=0.0003, drafter_row=0.000002)


class TimedSession:
    """Accepts each draft with the same chance, and takes the time that a machine would take."""

    def __init__(self, machine: Machine, chance: float, seed: int) -> None:
        self.limits, self.num_pages = LIMITS, 0
        self.clock = self.last = 0.0
        self._machine, self._chance = machine, chance
        self._rng = np.random.default_rng(seed)

    def allocate(self, num_pages: int) -> None:
        self.num_pages = num_pages

    def scrub(self, pages: NDArray[np.int32]) -> None:
        raise AssertionError("no row fails here")

    def step(self, inputs: StepInputs) -> StepOutputs:
        rows, drafted = inputs.context_lens.size, inputs.draft_rows.size
        right = self._rng.random((rows, G)) < self._chance
        widths = np.diff(inputs.cu_verify_lens)
        lens = np.minimum(1 + np.cumprod(right, axis=1).sum(axis=1), widths)
        ids = self._rng.integers(0, 1000, (rows, G + 1))
        self.last = self._machine.seconds(inputs.input_ids.size, drafted) * float(self._rng.lognormal(0.0, 0.1))
        self.clock += self.last
        return StepOutputs(
            ids.astype(np.int32),
            lens.astype(np.int32),
            np.zeros((rows, G + 1), np.float32),
            ids[:drafted, :G].astype(np.int32),
            np.ones(rows, bool),
        )


class TimedPolicy(DraftPolicy):
    """Sees the session's times in place of measured ones."""

    def __init__(self, session: TimedSession) -> None:
        super().__init__(G, has_drafter=True)
        self._session = session

    def observe_step(self, step: StepSize, seconds: float) -> None:
        super().observe_step(step, self._session.last)


def serve(machine: Machine, chance: float, clients: int, drafts: Drafting, *, steps: int) -> float:
    """Tokens a second of clients that ask again as soon as they are answered."""
    rng = random.Random(clients)
    session = TimedSession(machine, chance, seed=clients)
    session.allocate(32 * 40)
    core = EngineCore(session)
    core.policy = TimedPolicy(session)
    for _ in range(steps):
        for _ in range(clients - len(core.scheduler.running) - core.scheduler.num_waiting):
            prompt = [rng.randrange(1000) for _ in range(rng.randint(10, 150))]
            params = SamplingParams(max_tokens=rng.randint(10, 80), drafts=drafts, ignore_eos=True)
            core.add(core.make(prompt, params, lambda update: None, streaming=False))
        core.step()
    return core.stats.new_tokens / session.clock


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("clients", [1, 4, 16, 32])
def check(machine: Machine, clients: int, chance: float, steps: int) -> None:
    auto, on, off = (serve(machine, chance, clients, drafts, steps=steps) for drafts in ("auto", "on", "off"))
    assert auto > 0.95 * off
    assert auto > 0.92 * max(on, off)


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("clients", [1, 4, 16, 32])
@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
def test_near_the_better_of_on_and_off(machine: Machine, clients: int, chance: float) -> None:
    """What steps cost must be learned although few of them are without prompts, or with every row drafted for."""
    check(machine, clients, chance, 300)


@pytest.mark.long
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("clients", [1, 4, 16, 32])
@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
def test_near_the_better_of_on_and_off_for_long(machine: Machine, clients: int, chance: float) -> None:
    check(machine, clients, chance, 3000)
