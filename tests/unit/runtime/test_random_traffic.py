# SPDX-License-Identifier: Apache-2.0
"""Over a scripted session, for a long time: requests in random company say what REF says of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from hspec_trt.config.build import EXTENSION_NAMES
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.options import SchedulerOptions
from tests.support.edit_reference import generate_edited
from tests.support.scripted import Row, TextModel
from tests.support.traffic import TrafficMachine
from tests.unit.runtime.harness import Answer, check_empty, make_core, solo, submit

MODEL = TextModel(23)
MAX_SEQ_LEN = 64
EOS = frozenset({7})
EDITS: list[dict[str, object]] = [
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.7, "frequency_penalty": 0.2},
    {"logit_bias": ((5, 3.0), (2, -4.0)), "min_tokens": 9},
]


def random_params(rng: random.Random, room: int) -> SamplingParams:
    edits = rng.choice(EDITS) if rng.random() < 0.3 else {}
    return SamplingParams(
        max_tokens=rng.randint(min(int(edits.get("min_tokens", 1)), room), room),
        temperature=rng.choice([0.0, 0.7, 1.3]),
        top_k=rng.choice([0, 0, 5]),
        top_p=rng.choice([1.0, 1.0, 0.9]),
        min_p=rng.choice([0.0, 0.0, 0.05]),
        seed=rng.getrandbits(63),
        stop_token_ids=rng.choice([(), (), (3,)]),
        ignore_eos=rng.random() < 0.5,
        drafts=rng.choice(["on", "off", "auto"]),
        draft_source=rng.choice([None, "prompt_lookup", "both"]),
        **edits,  # type: ignore[arg-type]
    )


class ScriptedWorld:
    """REF is `TextModel`, asked for each answer anew, with the stop rules told on their own."""

    def make_core(self, spare_pages: int, options: SchedulerOptions) -> EngineCore:
        return make_core(
            model=MODEL,
            accept=lambda seed, position: (seed ^ position) % 5,
            num_pages=MAX_SEQ_LEN // 4 + 1 + spare_pages,
            eos_ids=EOS,
            options=options,
            vocab_size=MODEL.vocab_size,
            max_rows=4,
            max_tokens=20,
            max_seq_len=MAX_SEQ_LEN,
            draft_max_position=48,
            extensions=EXTENSION_NAMES,
        )

    def ask(self, core: EngineCore, rng: random.Random) -> Answer:
        size = rng.choice([1, 2, 4, 5, 8, 9, 20, 40])
        prompt = [i % 3 for i in range(size)] if rng.random() < 0.5 else [rng.randrange(23) for _ in range(size)]
        return submit(core, prompt, random_params(rng, MAX_SEQ_LEN - size), priority=rng.randint(-1, 1))

    def check(self, answer: Answer, *, cancelled: bool) -> None:
        params = answer.params
        eos, stops = set() if params.ignore_eos else EOS, set(params.stop_token_ids)
        text = self._text(answer, params.max_tokens or 0)
        end = next((i for i, token in enumerate(text) if token in eos | stops), len(text) - 1)
        if answer.last.finish == "cancelled":
            assert cancelled
            assert answer.ids == text[: end + 1][: len(answer.ids)]
        else:
            assert answer.ids == text[: end + 1]
            last = answer.ids[-1]
            assert answer.last.finish == ("eos" if last in eos else "stop_token" if last in stops else "length")
        assert answer.last.drafts is not None
        assert answer.last.drafts.num_tokens == len(answer.ids) == len(answer.logprobs)

    def _text(self, answer: Answer, count: int) -> list[int]:
        params = answer.params
        if not any((params.repetition_penalty != 1.0, params.presence_penalty, params.logit_bias)):
            return solo(answer, MODEL, count)
        row = Row(params.temperature, params.top_p, params.min_p, params.top_k, params.seed or 0)
        return generate_edited(MODEL, answer.prompt, count, row, params, EOS | set(params.stop_token_ids))


WORLD = ScriptedWorld()


def test_any_order_of_events() -> None:
    run_state_machine_as_test(
        lambda: TrafficMachine(WORLD), settings=settings(max_examples=25, stateful_step_count=40, deadline=None)
    )


@pytest.mark.long
def test_any_order_of_many_events() -> None:
    run_state_machine_as_test(
        lambda: TrafficMachine(WORLD), settings=settings(max_examples=150, stateful_step_count=150, deadline=None)
    )


def run_traffic(seed: int, steps: int) -> int:
    """Random traffic for so many steps; returns the requests that ended."""
    rng = random.Random(seed)
    core = WORLD.make_core(rng.randint(0, 24), SchedulerOptions(prefix_cache=rng.random() < 0.7))
    live: list[Answer] = []
    cancelled: set[int] = set()
    ended = 0
    for _ in range(steps):
        if len(live) < 12 and rng.random() < 0.5:
            live.append(WORLD.ask(core, rng))
        if live and rng.random() < 0.05:
            victim = rng.choice(live)
            cancelled.add(id(victim))
            core.cancel(victim.sequence)  # type: ignore[arg-type]
        core.step()
        for answer in [a for a in live if a.updates and a.updates[-1].finish]:
            WORLD.check(answer, cancelled=id(answer) in cancelled)
            live.remove(answer)
            ended += 1
    while core.step():
        pass
    for answer in live:
        WORLD.check(answer, cancelled=id(answer) in cancelled)
    check_empty(core)
    return ended


def test_a_thousand_steps_on_reused_slots() -> None:
    assert run_traffic(0, 1000) > 150


@pytest.mark.long
def test_twenty_thousand_steps_on_reused_slots() -> None:
    """Case D8: no index grows without bound, and every answer of a long run is right."""
    assert run_traffic(1, 20_000) > 3000
