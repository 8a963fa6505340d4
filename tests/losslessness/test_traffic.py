# SPDX-License-Identifier: Apache-2.0
"""On a real graph, with every drafter: requests in random company say what they say alone, whatever happens to them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from hspec_trt.config.sampling import Drafting, GuidedDecodingParams, SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.guided import GuideMaker
from hspec_trt.runtime.lookup import ScriptedDrafts
from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.shaper import TopTokens
from hspec_trt.runtime.tokenizer import Tokenizer
from tests.support.tiny_tokenizer import EOS_ID, tokenizer_files
from tests.support.traffic import TrafficMachine
from tests.unit.runtime.harness import Answer, check_empty, drain, submit

from .conftest import DRAFTERS, CoreFor

pytest.importorskip("llguidance")
VOCAB_SIZE = 256
EOS = frozenset({EOS_ID, 9})
STOPS = ("e", "th", "a ", "\n")


@dataclass(frozen=True)
class Alone:
    """A request, and what came of it without drafts and without company."""

    prompt: list[int]
    params: SamplingParams
    ids: list[int]
    logprobs: list[float]
    tops: list[TopTokens]
    finish: str | None


def random_params(rng: random.Random, seed: int, *, extended: bool) -> SamplingParams:
    params = SamplingParams(
        max_tokens=rng.choice([1, 2, 7, 40, 90]),
        temperature=rng.choice([0.0, 0.7, 1.3]),
        top_p=rng.choice([1.0, 0.9]),
        top_k=rng.choice([0, 20]),
        min_p=rng.choice([0.0, 0.02]),
        seed=seed,
        ignore_eos=rng.random() < 0.7,
        stop_token_ids=tuple(rng.sample(range(VOCAB_SIZE), rng.choice([0, 0, 2]))),
        stop=tuple(rng.sample(STOPS, rng.choice([0, 0, 0, 1]))),
        drafts="off",
    )
    if not extended or rng.random() < 0.5:
        return params
    if rng.random() < 0.3:
        guide = GuidedDecodingParams(regex=rng.choice(["[a-f ]{5,40}", "(yes|no)(, (yes|no))*!"]))
        return replace(params, guided_decoding=guide, ignore_eos=False)
    return replace(
        params,
        repetition_penalty=rng.choice([1.0, 1.3]),
        presence_penalty=rng.choice([0.0, 0.5]),
        frequency_penalty=rng.choice([0.0, 0.2]),
        logit_bias=rng.choice([(), ((9, 4.0), (30, -5.0))]),
        bad_words=rng.choice([(), ("e", "th")]),
        min_tokens=min(rng.choice([0, 12]), params.max_tokens or 0),
        logprobs=rng.choice([0, 3]),
    )


class RealWorld:
    """Requests out of a pool, on one engine. Many share their start.

    Args:
        extended: the engine has the optional parts of the step, and requests use them.
        modes: what requests are drawn from as `drafts`. With "auto" the steps depend on measured times.
    """

    def __init__(
        self, make: Callable[..., EngineCore], count: int, *, extended: bool, modes: Sequence[Drafting]
    ) -> None:
        self._make, self._modes = make, modes
        rng = random.Random(1)
        shared = [rng.randrange(VOCAB_SIZE) for _ in range(60)]
        core = make(options=SchedulerOptions(prefix_cache=False))
        self._limits = core.session.limits
        self.pool: list[Alone] = []
        for number in range(count):
            start = shared[: rng.choice([0, 16, 33, 60])] if rng.random() < 0.6 else []
            prompt = [*start, *(rng.randrange(VOCAB_SIZE) for _ in range(rng.choice([1, 5, 15, 16, 17, 50])))]
            self.pool.append(self._alone(core, prompt, random_params(rng, number, extended=extended)))
        self._asked: dict[int, Alone] = {}

    def _alone(self, core: EngineCore, prompt: list[int], params: SamplingParams) -> Alone:
        answer = submit(core, prompt, params)
        drain(core)
        assert answer.last.error is None
        return Alone(prompt, params, answer.ids, answer.logprobs, answer.tops, answer.last.finish)

    def make_core(self, spare_pages: int, options: SchedulerOptions) -> EngineCore:
        self._asked.clear()
        return self._make(num_pages=self._limits.max_pages_per_row + 1 + spare_pages, options=options)

    def ask(self, core: EngineCore, rng: random.Random) -> Answer:
        return self.ask_for(core, rng.choice(self.pool), rng)

    def ask_for(self, core: EngineCore, alone: Alone, rng: random.Random) -> Answer:
        """With drafts of any source: the drafter's, looked up, or right for any number of places."""
        limits = self._limits
        sources = [None, "prompt_lookup", *(["drafter", "both"] if limits.has_drafter else [])]
        params = replace(
            alone.params,
            drafts=rng.choice(self._modes),
            draft_source=rng.choice(sources),
            num_drafts=rng.choice([None, None, 1, 2]),
        )
        known = np.array([*alone.prompt, *alone.ids], np.int32)
        right = rng.randint(0, limits.num_drafts)
        script = ScriptedDrafts(known, right, limits.vocab_size) if rng.random() < 0.5 else None
        answer = submit(
            core, alone.prompt, params, priority=rng.randint(0, 1), streaming=rng.random() < 0.7, host_drafts=script
        )
        self._asked[id(answer)] = alone
        return answer

    def check(self, answer: Answer, *, cancelled: bool) -> None:
        """The same bits as alone, or the first of them where it was cancelled."""
        alone, count = self._asked[id(answer)], len(answer.ids)
        if answer.last.finish == "cancelled":
            assert cancelled
        else:
            assert (count, answer.last.finish) == (len(alone.ids), alone.finish)
        assert answer.ids == alone.ids[:count]
        assert answer.logprobs == alone.logprobs[:count]
        assert answer.tops == alone.tops[:count]
        assert answer.last.drafts is not None
        assert answer.last.drafts.num_tokens == count


WorldOf = Callable[..., RealWorld]


@pytest.fixture
def world_of(core_for: CoreFor, tmp_path: Path) -> WorldOf:
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_files(VOCAB_SIZE)["tokenizer.json"])
    decoder = Tokenizer((tmp_path / "tokenizer.json").read_bytes())
    guides = GuideMaker(tmp_path / "tokenizer.json", VOCAB_SIZE, sorted(EOS))

    def make(name: str, count: int, modes: Sequence[Drafting] = ("on", "on", "auto", "off")) -> RealWorld:
        def core(**options: object) -> EngineCore:
            return core_for(name, eos_ids=EOS, decoder=decoder, guides=guides, **options)

        return RealWorld(core, count, extended=name in DRAFTERS, modes=modes)

    return make


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", DRAFTERS)
def test_any_order_of_events(name: str, cached: bool, world_of: WorldOf) -> None:
    world = world_of(name, 12)
    run_state_machine_as_test(
        lambda: TrafficMachine(world, cached=cached),
        settings=settings(max_examples=4, stateful_step_count=30, deadline=None),
    )


@pytest.mark.long
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", DRAFTERS)
def test_any_order_of_many_events(name: str, cached: bool, world_of: WorldOf) -> None:
    world = world_of(name, 40)
    run_state_machine_as_test(
        lambda: TrafficMachine(world, cached=cached),
        settings=settings(max_examples=20, stateful_step_count=60, deadline=None),
    )


def run_traffic(world: RealWorld, core: EngineCore, seed: int) -> int:
    """Every request of the pool once, joining at random steps; some are cancelled. Returns how many were."""
    rng = random.Random(seed)
    todo = list(world.pool)
    rng.shuffle(todo)
    answers: list[Answer] = []
    picked: set[int] = set()
    while todo or not core.is_idle:
        for _ in range(rng.choice([0, 0, 1, 3])):
            if todo:
                answers.append(world.ask_for(core, todo.pop(), rng))
        if answers and rng.random() < 0.03:
            answer = rng.choice(answers)
            picked.add(id(answer))
            core.cancel(answer.sequence)  # type: ignore[arg-type]
        core.step()
    for answer in answers:
        world.check(answer, cancelled=id(answer) in picked)
    check_empty(core)
    return sum(answer.last.finish == "cancelled" for answer in answers)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", [*DRAFTERS, "t_rand_hspec", "no_drafter"])
def test_random_company(name: str, cached: bool, world_of: WorldOf) -> None:
    world = world_of(name, 16, modes=("on", "on", "off"))  # the same steps whatever time they take
    # about one long request's pages: less than the running rows want, so that some are preempted
    core = world.make_core(-4, SchedulerOptions(prefix_cache=cached, max_chunk=23))
    run_traffic(world, core, seed=2)
    assert core.stats.preemptions > 0
    assert (core.stats.cached_tokens > 0) == cached
    assert core.stats.drafts.accepted_length > 1.2


@pytest.mark.long
@pytest.mark.parametrize("name", [*DRAFTERS, "hspec_llama", "hspec_noseed", "hspec_nokv", "hspec_fullattn"])
def test_long_random_traffic(name: str, world_of: WorldOf) -> None:
    world = world_of(name, 60)
    cancelled = 0
    for seed in range(4):
        rng = random.Random(seed)
        options = SchedulerOptions(prefix_cache=rng.random() < 0.7, max_chunk=rng.choice([None, 5, 16, 31]))
        cancelled += run_traffic(world, world.make_core(rng.choice([0, 4, 80]), options), seed)
    assert cancelled > 0
