# SPDX-License-Identifier: Apache-2.0
"""Where a decode step's time goes: target, drafter, rest. One row, measured by what is left out.

A step without drafts, one that verifies drafts from elsewhere (so that the drafter does not run), and one with the
drafter are timed in turn; the drafter's share is the difference of the last two.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.lookup import HostDrafts, ScriptedDrafts
from hspec_trt.runtime.request import Update
from hspec_trt.suite.records import Timing

ROUNDS = 8
WARM_STEPS = 2
"""First decode steps of an answer that are not counted: one without drafts, one that pays for memory."""


@dataclass
class _Times:
    """Of one kind of step in one round."""

    session: list[float] = field(default_factory=list)
    rest: list[float] = field(default_factory=list)

    @property
    def medians(self) -> tuple[float, float]:
        return median(self.session), median(self.rest)


def time_steps(core: EngineCore, prompt: Sequence[int], *, steps: int) -> Timing:
    """Time an idle engine on one prompt.

    Args:
        prompt: token ids.
        steps: decode steps of each kind and round; the prompt and `steps` times G + 1 tokens must fit the engine.
    """
    limits = core.session.limits
    plain, verify, full = [], [], []
    for _ in range(ROUNDS):
        times = _Times()
        said = _decode(core, prompt, times, steps, drafts=False)
        plain.append(times.medians)
        if limits.num_drafts:
            times = _Times()
            script = ScriptedDrafts(_script(prompt, said, steps), 0, limits.vocab_size)
            _decode(core, prompt, times, steps, script=script)
        verify.append(times.medians)
        if limits.has_drafter:
            times = _Times()
            _decode(core, prompt, times, steps)
        full.append(times.medians)
    return Timing(tuple(plain), tuple(verify), tuple(full), os.getloadavg()[0])


def _script(prompt: Sequence[int], known: Sequence[int], steps: int) -> NDArray[np.int32]:
    """Text for a script to get wrong: what is known of the answer, then anything."""
    text = np.array([*prompt, *known], np.int32)
    return np.concatenate([text, np.resize(text, 64 * (steps + WARM_STEPS))])


def _decode(
    core: EngineCore,
    prompt: Sequence[int],
    times: _Times,
    steps: int,
    *,
    drafts: bool = True,
    script: HostDrafts | None = None,
) -> list[int]:
    """Decode `steps` steps after the warm ones and note each one's seconds in and outside the session.

    Returns:
        The tokens.
    """
    limits = core.session.limits
    width = limits.num_drafts + 1 if drafts else 1
    params = SamplingParams(
        max_tokens=(steps + WARM_STEPS + 1) * width,
        temperature=0.0,
        ignore_eos=True,
        drafts="on" if drafts else "off",
        draft_source=None if script is None else "prompt_lookup",  # so that the drafter's pass is left out
    )
    said: list[int] = []

    def take(update: Update) -> None:
        if update.error is not None:
            raise update.error
        said.extend(update.token_ids)

    sequence = core.make(prompt, params, take, host_drafts=script)
    core.add(sequence)
    number = 0
    while not core.is_idle:
        before, start = core.stats.step_seconds, time.perf_counter()
        decoding = core.stats.new_tokens
        core.step()
        wall, session = time.perf_counter() - start, core.stats.step_seconds - before
        number += core.stats.new_tokens > decoding
        if number > WARM_STEPS + 1:
            times.session.append(session)
            times.rest.append(wall - session)
        if number > WARM_STEPS + steps:
            core.cancel(sequence)
    return said
