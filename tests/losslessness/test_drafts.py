# SPDX-License-Identifier: Apache-2.0
"""The text is the target's own: with drafts, without, from another drafter, and with every accepted length forced."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.lookup import ScriptedDrafts
from hspec_trt.runtime.losslessness import own_prompts, verify
from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.ort_session import OrtSession
from tests.support.plain_loop import Text, plain_decode
from tests.unit.runtime.harness import Answer, check_empty, drain

from .conftest import DRAFTERS, ENGINES, HSPEC_ENGINES, MAX_SEQ_LEN, NUM_PAGES, PAGE_SIZE, CoreFor, with_drafters

Sessions = Callable[..., OrtSession]
TEMPERATURES = (0.0, 0.7, 1.3)
NUM_TOKENS = 20
MOST = 99
"""Drafts of a script that is right as often as the engine asks it."""


def submit(core: EngineCore, prompt: list[int], params: SamplingParams, script: ScriptedDrafts | None = None) -> Answer:
    answer = Answer(prompt, params)
    answer.sequence = core.make(prompt, params, answer.updates.append, streaming=True, host_drafts=script)
    core.add(answer.sequence)
    return answer


def ref(session: OrtSession, prompt: list[int], params: SamplingParams) -> Text:
    """REF: no speculation, no scheduler, one token a step."""
    session.allocate(NUM_PAGES)
    assert params.max_tokens is not None
    return plain_decode(
        session,
        prompt,
        params.max_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        min_p=params.min_p,
        top_k=params.top_k,
        seed=params.seed or 0,
    )


def random_prompt(session: OrtSession, size: int, seed: int = 0) -> list[int]:
    return np.random.default_rng([size, seed]).integers(0, session.limits.vocab_size, size).tolist()


@pytest.mark.parametrize("name", ENGINES)
def test_drafter_and_forced_accepted_lengths(name: str, core_for: CoreFor) -> None:
    """The product's own check: drafter and scripted drafts, right for 0 to G places, against drafts off."""
    core = core_for(name)
    checks = list(verify(core, own_prompts(core, count=3), bound=0.0, max_tokens=NUM_TOKENS))
    assert [str(check) for check in checks if not check.passed] == []
    most = core.session.limits.num_drafts
    assert len(checks) == 3 * 3 * (core.session.limits.has_drafter + most + 1)
    for check in checks:
        if check.drafts != "drafter":
            width = int(check.drafts.split()[1]) + 1
            decoded = NUM_TOKENS - 1  # the step that ends the prompt emits the first token
            assert check.accepted_length == pytest.approx(decoded / -(-decoded // width))
    check_empty(core)


@pytest.mark.parametrize("name", ENGINES)
def test_equal_to_the_plain_loop(name: str, sessions: Sessions, core_for: CoreFor) -> None:
    """Case C1: ids equal REF, and so do the log-probabilities, to the rounding of one logarithm."""
    session = sessions(name)
    for number, temperature in enumerate(TEMPERATURES):
        params = SamplingParams(temperature=temperature, seed=77 + number, max_tokens=40, drafts="on")
        prompt = random_prompt(session, 5 + 14 * number)
        text = ref(session, prompt, params)
        core = core_for(name)
        answer = submit(core, prompt, params)
        drain(core)
        assert answer.ids == text.ids
        np.testing.assert_allclose(answer.logprobs, text.logprobs, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "length", "chunk", "drafts"),
    with_drafters(
        product([1, PAGE_SIZE, PAGE_SIZE + 1, MAX_SEQ_LEN - 1], [1, 7, PAGE_SIZE, None], ["on", "off"]),
        short=[(1, None, "on"), (PAGE_SIZE, 1, "on"), (PAGE_SIZE + 1, 7, "on"), (MAX_SEQ_LEN - 1, None, "on")],
    ),
)
def test_prompt_lengths_and_chunks(
    name: str, length: int, chunk: int | None, drafts: str, sessions: Sessions, core_for: CoreFor
) -> None:
    session = sessions(name)
    count = min(20, MAX_SEQ_LEN - length)
    params = SamplingParams(temperature=0.7, seed=9, max_tokens=count, drafts=drafts)  # type: ignore[arg-type]
    prompt = random_prompt(session, length)
    text = ref(session, prompt, params)
    core = core_for(name, options=SchedulerOptions(max_chunk=chunk))
    answer = submit(core, prompt, params)
    drain(core)
    assert answer.ids == text.ids
    assert answer.last.finish == "length"


SPLITS = (64, 1, 3, 5, 7, 13, 31)


@pytest.mark.parametrize(
    ("name", "chunks"), [*with_drafters([(SPLITS,), ((1, 31),)], short=[((1, 31),)]), ("hspec_fullattn", SPLITS)]
)
def test_any_split_of_a_prompt(name: str, chunks: tuple[int, ...], core_for: CoreFor) -> None:
    """Case D5: text, log-probabilities and the drafts' fate are the same bits whatever the chunks of a long prompt."""
    seen = {}
    for chunk in (None, *chunks):
        core = core_for(name, options=SchedulerOptions(max_chunk=chunk, prefix_cache=False))
        prompt = random_prompt(core.session, 226)
        answer = submit(core, prompt, SamplingParams(temperature=0.7, seed=5, max_tokens=24, drafts="on"))
        drain(core)
        drafts = answer.last.drafts
        assert drafts is not None
        seen[chunk] = (answer.ids, answer.logprobs, drafts.offered, drafts.accepted)
    assert drafts.drafted > 0
    assert all(result == seen[None] for result in seen.values())


@pytest.mark.parametrize(("name", "chunk"), with_drafters([(1,), (2,), (3,)], short=[(1,), (3,)]))
def test_a_shared_start_is_left_as_it_is(name: str, chunk: int, core_for: CoreFor) -> None:
    """Case E8: what follows a cached start in chunks shorter than a convolution writes its own pages only.

    The answer and the fate of its drafts are those of an engine that ran the start itself, and a page whose content
    depends on the token after it is shared by nobody with another such token.
    """
    core = core_for(name, options=SchedulerOptions(max_chunk=chunk))
    session = core.session
    assert isinstance(session, OrtSession)
    start = random_prompt(session, 2 * PAGE_SIZE)
    params = SamplingParams(temperature=0.0, max_tokens=12, drafts="on")
    submit(core, [*start, 1, 2, 3], params)
    drain(core)
    hit = core.scheduler.cache.match(np.array([*start, 9], np.int32))
    before = [pool[hit.pages].copy() for pool in session._pages]
    answer = submit(core, [*start, 9, 8, 7, 6], params)
    drain(core)
    assert answer.last.timing is not None
    shared = 2 - session.limits.cache_lookahead
    assert answer.last.timing.cached_tokens == shared * PAGE_SIZE
    assert len(hit.pages) == shared
    for pool, pages in zip(session._pages, before, strict=True):
        np.testing.assert_array_equal(pool[hit.pages], pages)
    core = core_for(name, options=SchedulerOptions(max_chunk=chunk, prefix_cache=False))
    alone = submit(core, answer.prompt, params)
    drain(core)
    assert (alone.ids, alone.logprobs, alone.last.drafts) == (answer.ids, answer.logprobs, answer.last.drafts)


@pytest.mark.parametrize(("name", "short"), with_drafters([(short,) for short in range(5)], short=[(0,), (3,)]))
def test_generation_reaches_the_limit_exactly(name: str, short: int, sessions: Sessions, core_for: CoreFor) -> None:
    """Case D2: prompt 250, limit 256; total tokens are exactly what was asked, with any accepted length on the way."""
    session = sessions(name)
    prompt = random_prompt(session, 250)
    params = SamplingParams(temperature=0.0, max_tokens=6 - short, drafts="on")
    text = ref(session, prompt, params)
    for right in (0, 1, session.limits.num_drafts):
        core = core_for(name)
        script = ScriptedDrafts(np.array([*prompt, *text.ids], np.int32), right, session.limits.vocab_size)
        answer = submit(core, prompt, params, script)
        drain(core)
        assert answer.ids == text.ids
        check_empty(core)


@pytest.mark.parametrize(("name", "right"), with_drafters([(0,), (3,), (MOST,)], short=[(3,)]))
def test_eos_at_every_draft_slot(name: str, right: int, sessions: Sessions, core_for: CoreFor) -> None:
    """Case F2 on a real graph: the answer ends at the end token, whatever slot of a run it falls on."""
    session = sessions(name)
    params = SamplingParams(temperature=1.3, seed=4, max_tokens=40, drafts="on")
    prompt = random_prompt(session, 12)
    text = ref(session, prompt, params).ids
    place = next(i for i in range(9, 40) if text[i] not in text[:i])
    for slot in range(session.limits.num_drafts + 1):
        start = [*prompt, *text[: place - slot - 1]]  # the step after the prompt's starts so many before the end token
        core = core_for(name, eos_ids=frozenset({text[place]}))
        script = ScriptedDrafts(np.array([*prompt, *text], np.int32), right, session.limits.vocab_size)
        answer = submit(core, start, params, script)
        drain(core)
        assert answer.ids == text[place - slot - 1 : place + 1], slot
        assert answer.last.finish == "eos"
        assert answer.last.drafts is not None
        assert answer.last.drafts.num_tokens == len(answer.ids)
        check_empty(core)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_another_drafter_none_and_fewer_drafts(temperature: float, core_for: CoreFor) -> None:
    """Four engines of one target: two drafters, one that drafts less, none; with every filter on."""
    params = SamplingParams(
        temperature=temperature, top_p=0.95, top_k=60, min_p=0.01, seed=11, max_tokens=48, drafts="on"
    )
    texts = {}
    lengths = {}
    for name in ("hspec_qwen3", "other_drafter", "no_drafter", "hspec_qwen3_k3", "hspec_qwen3_k1"):
        core = core_for(name)
        answers = [submit(core, list(range(start, start + 9)), params) for start in (1, 50, 200)]
        drain(core)
        texts[name] = [answer.ids for answer in answers]
        lengths[name] = core.stats.drafts.accepted_length
    assert all(text == texts["hspec_qwen3"] for text in texts.values())
    assert temperature > 0 or lengths["hspec_qwen3"] > 1.0  # some drafts were accepted: the equality is not empty


@pytest.mark.parametrize("name", ["hspec_qwen3", "t_rand_mha"])
def test_weights_not_repacked(name: str, sessions: Sessions, core_for: CoreFor) -> None:
    """The zero-copy session multiplies single rows by another routine; padding hides it."""
    core = core_for(name, prepack=False)
    checks = list(verify(core, own_prompts(core, count=2), bound=0.0, max_tokens=NUM_TOKENS))
    assert [str(check) for check in checks if not check.passed] == []


@pytest.mark.parametrize(("name", "length"), with_drafters([(31,), (32,), (33,), (100,)], short=[(31,), (33,)]))
def test_past_the_drafters_positions(name: str, length: int, sessions: Sessions, core_for: CoreFor) -> None:
    """Case D1."""
    session = sessions(name)
    params = SamplingParams(temperature=0.0, max_tokens=12, drafts="on")
    prompt = random_prompt(session, length)
    text = ref(session, prompt, params)
    core = core_for(name, draft_max_position=32)
    answer = submit(core, prompt, params)
    drain(core)
    assert answer.ids == text.ids
    assert core.stats.drafts.without["position"] > 0


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", ["t_tie", "t_tie_ulp", "t_tie_1e-3"])
def test_ties(name: str, cached: bool, sessions: Sessions, core_for: CoreFor) -> None:
    """Case C4: at a tie the lowest id wins, with drafts and without, cached start or not."""
    session = sessions(name)
    prompt = random_prompt(session, 20)
    params = SamplingParams(temperature=0.0, max_tokens=60, drafts="on")
    text = ref(session, prompt, params).ids
    core = core_for(name, options=SchedulerOptions(prefix_cache=cached))
    for right in (0, 2, 4):
        script = ScriptedDrafts(np.array([*prompt, *text], np.int32), right, session.limits.vocab_size)
        answer = submit(core, prompt, params, script)
        drain(core)
        assert answer.ids == text
    assert (core.stats.cached_tokens > 0) == cached
    # Where 20 would follow, 40 has the same logit or a larger one.
    assert 40 not in text if name == "t_tie" else 20 not in text[1:]


@pytest.mark.long
@pytest.mark.parametrize("name", [*HSPEC_ENGINES, *DRAFTERS[1:]])
def test_fifty_prompts(name: str, sessions: Sessions, core_for: CoreFor) -> None:
    """Case C1 at its full size."""
    session = sessions(name)
    core = core_for(name)
    params = SamplingParams(temperature=0.0, max_tokens=100, drafts="on")
    prompts = [random_prompt(session, 3 + i, seed=5) for i in range(50)]
    answers = [submit(core, prompt, params) for prompt in prompts]
    drain(core)
    for answer in answers:
        assert answer.ids == ref(session, answer.prompt, params).ids
