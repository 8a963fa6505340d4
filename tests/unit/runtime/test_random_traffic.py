# SPDX-License-Identifier: Apache-2.0
"""Requests that join, leave, are preempted and cancelled in random order say what they say alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.options import SchedulerOptions
from tests.support.scripted import TextModel
from tests.unit.runtime.harness import Answer, check_empty, make_core, solo, submit

MODEL = TextModel(23)
SIZES = {"vocab_size": 23, "max_rows": 4, "max_tokens": 20, "max_seq_len": 64, "draft_max_position": 48}
EOS = frozenset({7})


def accept(seed: int, position: int) -> int:
    return (seed ^ position) % 5


def expected(answer: Answer) -> list[int]:
    """REF with the stop rules, told on its own."""
    params = answer.params
    text = solo(answer, MODEL, params.max_tokens or 0)
    stops = set(params.stop_token_ids) | (set() if params.ignore_eos else EOS)
    end = next((i for i, token in enumerate(text) if token in stops), len(text) - 1)
    return text[: end + 1]


def random_params(rng: random.Random, room: int) -> SamplingParams:
    return SamplingParams(
        max_tokens=rng.randint(1, room),
        temperature=rng.choice([0.0, 0.7, 1.3]),
        top_k=rng.choice([0, 0, 5]),
        top_p=rng.choice([1.0, 1.0, 0.9]),
        min_p=rng.choice([0.0, 0.0, 0.05]),
        seed=rng.getrandbits(63),
        stop_token_ids=rng.choice([(), (), (3,)]),
        ignore_eos=rng.random() < 0.5,
        drafts=rng.choice(["on", "off", "auto"]),
        draft_source=rng.choice([None, "prompt_lookup", "both"]),
    )


def random_request(core: EngineCore, rng: random.Random) -> Answer:
    size = rng.choice([1, 2, 4, 5, 8, 9, 20, 40])
    prompt = [i % 3 for i in range(size)] if rng.random() < 0.5 else [rng.randrange(23) for _ in range(size)]
    return submit(core, prompt, random_params(rng, 64 - size), priority=rng.randint(-1, 1))


def check(answer: Answer, cancelled: bool) -> None:
    if answer.last.finish == "cancelled":
        assert cancelled
        assert answer.ids == solo(answer, MODEL, len(answer.ids))
    else:
        assert answer.ids == expected(answer)
        stops = set(answer.params.stop_token_ids)
        eos = set() if answer.params.ignore_eos else EOS
        last = answer.ids[-1]
        assert answer.last.finish == ("eos" if last in eos else "stop_token" if last in stops else "length")
    assert answer.last.drafts is not None
    assert answer.last.drafts.emitted == len(answer.ids) == len(answer.logprobs)


class Traffic(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.core: EngineCore | None = None
        self.live: list[Answer] = []
        self.cancelled: set[int] = set()

    @precondition(lambda self: self.core is None)
    @rule(pages=st.integers(17, 40), cache=st.booleans(), chunk=st.sampled_from([None, 3]))
    def load(self, pages: int, cache: bool, chunk: int | None) -> None:
        options = SchedulerOptions(prefix_cache=cache, max_chunk=chunk)
        self.core = make_core(model=MODEL, accept=accept, num_pages=pages, eos_ids=EOS, options=options, **SIZES)

    @precondition(lambda self: self.core is not None)
    @rule(seed=st.integers(0, 2**32))
    def join(self, seed: int) -> None:
        assert self.core is not None
        self.live.append(random_request(self.core, random.Random(seed)))

    @precondition(lambda self: self.live)
    @rule(pick=st.integers(0, 99))
    def cancel(self, pick: int) -> None:
        answer = self.live[pick % len(self.live)]
        assert self.core is not None
        assert answer.sequence is not None
        self.cancelled.add(id(answer))
        self.core.cancel(answer.sequence)

    @precondition(lambda self: self.core is not None)
    @rule(count=st.integers(1, 6))
    def run_steps(self, count: int) -> None:
        assert self.core is not None
        for _ in range(count):
            self.core.step()

    @invariant()
    def ended_answers_are_right(self) -> None:
        for answer in [a for a in self.live if a.updates and a.updates[-1].finish]:
            check(answer, id(answer) in self.cancelled)
            self.live.remove(answer)

    def teardown(self) -> None:
        if self.core is not None:
            while self.core.step():
                pass
            self.ended_answers_are_right()
            assert not self.live
            check_empty(self.core)


Traffic.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestTraffic = Traffic.TestCase


def run_traffic(seed: int, steps: int) -> int:
    """Random traffic for so many steps; returns the requests that ended."""
    rng = random.Random(seed)
    options = SchedulerOptions(prefix_cache=rng.random() < 0.7)
    core = make_core(
        model=MODEL,
        accept=lambda s, p: (s ^ p) % 5,
        num_pages=rng.randint(17, 40),
        eos_ids=EOS,
        options=options,
        **SIZES,
    )
    live: list[Answer] = []
    cancelled: set[int] = set()
    ended = 0
    for _ in range(steps):
        if len(live) < 12 and rng.random() < 0.5:
            live.append(random_request(core, rng))
        if live and rng.random() < 0.05:
            victim = rng.choice(live)
            cancelled.add(id(victim))
            core.cancel(victim.sequence)  # type: ignore[arg-type]
        core.step()
        for answer in [a for a in live if a.updates and a.updates[-1].finish]:
            check(answer, id(answer) in cancelled)
            live.remove(answer)
            ended += 1
    while core.step():
        pass
    for answer in live:
        check(answer, id(answer) in cancelled)
    check_empty(core)
    return ended


def test_a_thousand_steps_on_reused_slots() -> None:
    assert run_traffic(0, 1000) > 150


@pytest.mark.slow
def test_twenty_thousand_steps_on_reused_slots() -> None:
    """Case D8: no index grows without bound, and every answer of a long run is right."""
    assert run_traffic(1, 20_000) > 3000
