# SPDX-License-Identifier: Apache-2.0
"""The step loop on the TensorRT session: lossless while the device runs ahead, whatever ends or comes meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from hspec_trt.config.sampling import Drafting, SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.losslessness import own_prompts, verify
from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.ort_session import OrtSession
from tests.support.plain_loop import plain_decode
from tests.unit.runtime.harness import Answer, check_empty, drain, submit

from .conftest import NUM_PAGES, Doubled

Reference = Callable[..., OrtSession]


def ref(session: OrtSession, answer: Answer, count: int) -> list[int]:
    session.allocate(NUM_PAGES)
    params = answer.params
    options = {name: getattr(params, name) for name in ("temperature", "top_p", "min_p", "top_k")}
    return plain_decode(session, answer.prompt, count, seed=params.seed or 0, **options).ids


def prompt_of(size: int, seed: int = 0) -> list[int]:
    return np.random.default_rng([size, seed]).integers(0, 256, size).tolist()


@pytest.mark.parametrize("aliased", [True, False], ids=["in_place", "swapped"])
@pytest.mark.parametrize("case", ["hspec_qwen3", "eagle3_qwen3"])
def test_verify_passes_without_a_bound(case: str, aliased: bool, doubled: Doubled) -> None:
    core = EngineCore(doubled(case, aliased=aliased).session)
    checks = list(verify(core, own_prompts(core, count=2), bound=0.0, max_tokens=20, temperatures=(0.0, 0.7)))
    assert [str(check) for check in checks if not check.passed] == [] and len(checks) >= 24
    assert core.lookahead.followed > 0


@pytest.mark.parametrize("drafts", ["on", "auto"])
def test_running_ahead_changes_no_text(drafts: Drafting, doubled: Doubled, reference: Reference) -> None:
    """Several rows of different lengths, so that rows end, by length or end token, while a step is ahead of them."""
    wanted = reference()
    params = [
        SamplingParams(temperature=t, seed=5, max_tokens=n, drafts=drafts) for t, n in ((0.0, 60), (0.9, 41), (0.5, 77))
    ]
    prompts = [prompt_of(9 + 5 * number) for number in range(3)]
    texts = [ref(wanted, Answer(prompt, one), one.max_tokens or 0) for prompt, one in zip(prompts, params, strict=True)]
    ends = texts[2][50]
    core = EngineCore(doubled().session, eos_ids=frozenset({ends}))
    answers = [submit(core, prompt, one) for prompt, one in zip(prompts, params, strict=True)]
    drain(core)
    for answer, text in zip(answers, texts, strict=True):
        cut = text.index(ends) + 1 if ends in text else len(text)
        assert answer.last.error is None
        assert answer.ids == text[:cut]
    assert core.lookahead.followed > 3 and core.session.launcher.counts.replayed > 3
    check_empty(core)


def test_traffic(doubled: Doubled, reference: Reference) -> None:
    """Arrivals, cancels, few pages (so preemption) and prompts in chunks: every text is the one of REF."""
    rng, wanted = random.Random(3), reference()
    core = EngineCore(doubled(num_pages=26).session, options=SchedulerOptions(max_chunk=13))
    answers, cancelled = [], set()
    for number in range(14):
        size, drafts = rng.randint(1, 40), rng.choice(["on", "on", "on", "off"])
        params = SamplingParams(
            temperature=rng.choice([0.0, 0.8]), seed=number, max_tokens=rng.randint(1, 90), drafts=drafts
        )
        answers.append(submit(core, prompt_of(size, number), params))
        for _ in range(rng.randint(0, 6)):
            core.step()
        if rng.random() < 0.3:
            chosen = rng.randrange(len(answers))
            sequence = answers[chosen].sequence
            assert sequence is not None
            if sequence.finish is None:
                core.cancel(sequence)
                cancelled.add(chosen)
    drain(core)
    for number, answer in enumerate(answers):
        text = ref(wanted, answer, answer.params.max_tokens or 0)
        assert answer.ids == (text[: len(answer.ids)] if number in cancelled else text)
    assert core.lookahead.followed > 2
    check_empty(core)


def test_an_answer_that_fails_ends_alone(doubled: Doubled, reference: Reference) -> None:
    """A launch that is refused ends the rows of its step; the next request is served from clean ground."""
    made = doubled()
    core = EngineCore(made.session)
    answers = [submit(core, prompt_of(8 + i), SamplingParams(max_tokens=60, drafts="on")) for i in range(2)]
    for _ in range(4):
        core.step()
    made.trt.enqueue_fails = True
    made.session.launcher.forget_addresses()
    drain(core)
    assert [answer.last.finish for answer in answers] == ["error", "error"]
    made.trt.enqueue_fails = False
    after = submit(core, prompt_of(30), SamplingParams(max_tokens=40, drafts="on", temperature=0.0))
    drain(core)
    assert after.ids == ref(reference(), after, 40)
    check_empty(core)


def test_nothing_runs_ahead_where_it_cannot_be_known(doubled: Doubled) -> None:
    """Drafts off, one that waits, an engine without feedback, the end within reach."""
    for options, params in (
        ({}, {"drafts": "off"}),
        ({"extensions": ()}, {"drafts": "on"}),
        ({}, {"drafts": "on", "max_tokens": 8}),
        ({}, {"drafts": "on", "num_drafts": 3}),
        ({}, {"drafts": "on", "draft_source": "prompt_lookup"}),
    ):
        core = EngineCore(doubled(**options).session)
        submit(core, prompt_of(12), SamplingParams(**{"max_tokens": 40, **params}))
        drain(core)
        assert core.lookahead.followed == 0, (options, params)
