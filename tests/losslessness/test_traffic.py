# SPDX-License-Identifier: Apache-2.0
"""On a real graph: requests in random company say what they say alone, whatever happens to them on the way."""

from __future__ import annotations

import random

import pytest

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.options import SchedulerOptions
from tests.unit.runtime.harness import Answer, check_empty, drain, submit

from .conftest import HSPEC_ENGINES, CoreFor

EOS = frozenset({5, 9})
Request = tuple[tuple[int, ...], SamplingParams]


def make_requests(core: EngineCore, count: int, seed: int) -> list[Request]:
    """Requests of which many share their start."""
    vocab_size = core.session.limits.vocab_size
    both = "both" if core.session.limits.has_drafter else "prompt_lookup"
    rng = random.Random(seed)
    shared = [rng.randrange(vocab_size) for _ in range(60)]
    made: list[Request] = []
    for number in range(count):
        start = shared[: rng.choice([0, 16, 33, 60])] if rng.random() < 0.6 else []
        prompt = [*start, *(rng.randrange(vocab_size) for _ in range(rng.choice([1, 5, 15, 16, 17, 50])))]
        params = SamplingParams(
            max_tokens=rng.choice([1, 2, 7, 40, 90]),
            temperature=rng.choice([0.0, 0.7, 1.3]),
            top_p=rng.choice([1.0, 0.9]),
            top_k=rng.choice([0, 20]),
            min_p=rng.choice([0.0, 0.02]),
            seed=number,
            ignore_eos=rng.random() < 0.8,
            drafts=rng.choice(["on", "off", "auto"]),
            draft_source=rng.choice([None, None, both, "prompt_lookup"]),
        )
        made.append((tuple(prompt), params))
    return made


def solo_texts(core: EngineCore, requests: list[Request]) -> list[list[int]]:
    texts = []
    for prompt, params in requests:
        answer = submit(core, list(prompt), params)
        drain(core)
        texts.append(answer.ids)
    return texts


def run_traffic(core: EngineCore, requests: list[Request], seed: int) -> list[tuple[int, Answer]]:
    """Requests join at random steps; some are cancelled. Returns all answers with the number of their request."""
    rng = random.Random(seed)
    todo = list(enumerate(requests))
    rng.shuffle(todo)
    answers: list[tuple[int, Answer]] = []
    while todo or not core.is_idle:
        for _ in range(rng.choice([0, 0, 1, 3])):
            if todo:
                number, (prompt, params) = todo.pop()
                answers.append((number, submit(core, list(prompt), params, priority=rng.randint(0, 1))))
        if answers and rng.random() < 0.03:
            core.cancel(rng.choice(answers)[1].sequence)  # type: ignore[arg-type]
        core.step()
    return answers


def check(answers: list[tuple[int, Answer]], texts: list[list[int]]) -> int:
    cancelled = 0
    for number, answer in answers:
        if answer.last.finish == "cancelled":
            cancelled += 1
            assert answer.ids == texts[number][: len(answer.ids)]
        else:
            assert answer.ids == texts[number]
    return cancelled


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", ["hspec_qwen3", "t_rand_hspec", "no_drafter"])
def test_random_company(name: str, cached: bool, core_for: CoreFor) -> None:
    core = core_for(name, eos_ids=EOS, options=SchedulerOptions(prefix_cache=False))
    requests = make_requests(core, 20, seed=1)
    texts = solo_texts(core, requests)
    # 18 pages: less than the running rows want, so that some are preempted
    core = core_for(name, eos_ids=EOS, num_pages=18, options=SchedulerOptions(prefix_cache=cached, max_chunk=23))
    answers = run_traffic(core, requests, seed=2)
    check(answers, texts)
    assert core.stats.preemptions > 0
    assert (core.stats.cached_tokens > 0) == cached
    check_empty(core)


@pytest.mark.slow
@pytest.mark.parametrize("name", HSPEC_ENGINES)
def test_long_random_traffic(name: str, core_for: CoreFor) -> None:
    core = core_for(name, eos_ids=EOS, options=SchedulerOptions(prefix_cache=False))
    requests = make_requests(core, 120, seed=3)
    texts = solo_texts(core, requests)
    cancelled = 0
    for seed in range(6):
        rng = random.Random(seed)
        options = SchedulerOptions(prefix_cache=rng.random() < 0.7, max_chunk=rng.choice([None, 5, 16, 31]))
        core = core_for(name, eos_ids=EOS, num_pages=rng.choice([14, 18, 100]), options=options)
        cancelled += check(run_traffic(core, requests, seed), texts)
        check_empty(core)
    assert cancelled > 0
