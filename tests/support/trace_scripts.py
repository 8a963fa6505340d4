# SPDX-License-Identifier: Apache-2.0
"""The scripts of the recorded traces: what each is about, on which engine, and with how many pages."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from hspec_trt.config.build import EXTENSION_NAMES, FEEDBACK, BuildConfig
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.session import Limits
from tests.support.golden_drafters import load_case, pair_of
from tests.support.golden_pair import hspec_pair
from tests.support.graph_engine import Pair
from tests.support.recorder import Cancel, Script, Submit, close_call, dear_drafts, uneven
from tests.support.table_codec import TableCodec

BUILD = BuildConfig(page_size=16, max_batch_size=8, max_num_tokens=128, max_seq_len=256)
ENGINES: dict[str, tuple[Callable[[], Pair], BuildConfig]] = {
    "hspec": (lambda: hspec_pair("hspec_llama"), BUILD),
    "full": (lambda: hspec_pair("hspec_qwen3"), replace(BUILD, extensions=EXTENSION_NAMES)),
    "feeding": (lambda: hspec_pair("hspec_llama"), replace(BUILD, extensions=(FEEDBACK,))),
    "feeding_eagle3": (lambda: pair_of(load_case("eagle3_llama")), replace(BUILD, extensions=(FEEDBACK,))),
    "target": (lambda: hspec_pair("hspec_qwen3").without_drafter(), replace(BUILD, num_drafts=5)),
    "dflash": (lambda: pair_of(load_case("dflash_qwen3")), BUILD),
    "eagle3": (lambda: pair_of(load_case("eagle3_llama")), replace(BUILD, page_size=32)),
}
GREEDY = SamplingParams(temperature=0.0, drafts="on", max_tokens=24, seed=0)
FIFTH_TOKEN = 4
"""The call of the step loop that gives the second client of `three_clients` its fifth token."""
Texts = Callable[[tuple[int, ...], SamplingParams], tuple[int, ...]]
"""Prompt and options to prompt with the text that will follow."""


@dataclass(frozen=True)
class Case:
    """A script to record.

    Attributes:
        engine: a name of `ENGINES`.
        make: makes the script from the engine's limits and its texts.
        num_pages: P.
        draft_max_position: in place of the engine's own, which lies beyond its longest text.
    """

    engine: str
    make: Callable[[Limits, Texts], Script]
    num_pages: int = 80
    draft_max_position: int | None = None


def prompt_of(seed: int, size: int) -> tuple[int, ...]:
    """A random prompt."""
    rng = random.Random(seed)
    return tuple(rng.randrange(10, 250) for _ in range(size))


def accepted_lengths(limits: Limits, texts: Texts) -> Script:
    """Rows with 0 to G right drafts, in one batch; every other one sampled."""
    events = []
    for right in range(limits.num_drafts + 1):
        params = replace(GREEDY, temperature=0.8 * (right % 2), seed=right)
        prompt = prompt_of(right, 5 + 3 * right)
        events.append(Submit(right // 3, prompt, params, right=right, text=texts(prompt, params)))
    return Script(tuple(events))


def traffic(seed: int, count: int = 12, **options: object) -> Callable[[Limits, Texts], Script]:
    """Random requests that join at random calls, of which some are cancelled and many share their start."""

    def make(limits: Limits, texts: Texts) -> Script:
        rng = random.Random(seed)
        shared = prompt_of(seed, 70)
        both = "both" if limits.has_drafter else "prompt_lookup"
        events: list[Submit | Cancel] = []
        for number in range(1, count + 1):
            start = shared[: rng.choice([0, 16, 33, 64, 70])] if rng.random() < 0.6 else ()
            params = SamplingParams(
                max_tokens=rng.choice([1, 2, 9, 20, 40]),
                temperature=rng.choice([0.0, 0.7, 1.3]),
                top_p=rng.choice([1.0, 0.9]),
                top_k=rng.choice([0, 20]),
                min_p=rng.choice([0.0, 0.02]),
                seed=number,
                ignore_eos=rng.random() < 0.5,
                drafts=rng.choice(["on", "off", "auto"]),
                num_drafts=rng.choice([None, None, 1, 3]),
                draft_source=rng.choice([None, None, both, "prompt_lookup"]),
                stop_token_ids=rng.choice([(), (), (17, 30, 99)]),
            )
            prompt = (*start, *prompt_of(seed * 100 + number, rng.choice([1, 5, 15, 16, 17, 40])))
            at = rng.randrange(0, 20)
            streaming, priority = rng.random() < 0.7, rng.choice([0, 0, 0, 1])
            events.append(Submit(at, prompt, params, priority=priority, streaming=streaming))
        events.sort(key=lambda event: event.at)
        for number in rng.sample(range(1, count + 1), count // 4):
            submitted = events[number - 1].at
            events.append(Cancel(submitted + rng.randrange(1, 15), number))
        return Script(tuple(events), eos_ids=(5, 9, 40), **options)  # type: ignore[arg-type]

    return make


def shared_starts(limits: Limits, texts: Texts) -> Script:
    """One after the other, requests that start alike: whole prompts again, longer ones, one that ends inside a page."""
    base = prompt_of(1, 70)
    prompts = [base, base, base[:64], (*base[:40], *prompt_of(2, 30)), (*base, *prompt_of(3, 20)), base[:65], base[:16]]
    events = [Submit(9 * number, prompt, replace(GREEDY, max_tokens=20)) for number, prompt in enumerate(prompts)]
    return Script(tuple(events))


def stops(limits: Limits, texts: Texts) -> Script:
    """Texts that end by id, by string and by length, with the end at every place of a step."""
    codec, events = TableCodec.of_size(limits.vocab_size), []
    for number in range(8):
        prompt, params = prompt_of(20 + number, 12), replace(GREEDY, temperature=0.9, seed=number)
        text = texts(prompt, params)
        following = list(text[len(prompt) :])
        place = 3 + 2 * number
        if number % 4 == 0:
            params = replace(params, stop_token_ids=(following[place],))
        elif number % 4 == 1:
            params = replace(params, stop=(codec.decode(following[place : place + 2]) or "zzz", "qqqq"))
        elif number % 4 == 2:
            params = replace(params, max_tokens=place)
        else:
            word = codec.decode(following[place : place + 3]) or "zzz"
            params = replace(params, stop=(word,), stop_token_ids=(following[place + 2],), ignore_eos=True)
        events.append(Submit(number // 2, prompt, params, right=limits.num_drafts, text=text))
    return Script(tuple(events), eos_ids=(60, 61, 62), codec=codec)


def edited(limits: Limits, texts: Texts) -> Script:
    """Penalties, biases, bad words, least lengths and lists of likely tokens, alone and together."""
    options: list[dict[str, object]] = [
        {"repetition_penalty": 1.3},
        {"presence_penalty": 0.6, "frequency_penalty": 0.4},
        {"logit_bias": ((7, 3.0), (11, -100.0), (7, 1.0))},
        {"bad_words": ("ab", "c", "hij")},
        {"min_tokens": 12},
        {"logprobs": 3},
        {"repetition_penalty": 0.8, "min_tokens": 6, "logprobs": 20, "logit_bias": ((5, 50.0),), "bad_words": ("no",)},
        {},
    ]
    events = [
        Submit(number // 3, prompt_of(40 + number, 9), replace(GREEDY, temperature=0.7, seed=number, **changes))  # type: ignore[arg-type]
        for number, changes in enumerate(options)
    ]
    return Script(tuple(events), eos_ids=(5, 40), codec=TableCodec.of_size(limits.vocab_size))


def guided(limits: Limits, texts: Texts) -> Script:
    """Rows with masks among rows without, and a grammar that gives up."""
    params = replace(GREEDY, temperature=0.9, seed=3)
    events = (
        Submit(0, prompt_of(50, 8), params, guide=0),
        Submit(0, prompt_of(51, 20), replace(params, logprobs=2, presence_penalty=0.5), guide=0),
        Submit(1, prompt_of(52, 5), params),
        Submit(2, prompt_of(53, 30), params, guide=5),
        Submit(3, prompt_of(54, 3), replace(params, draft_source="prompt_lookup"), guide=0),
    )
    return Script(events, eos_ids=(5,))


def waiting_line(limits: Limits, texts: Texts) -> Script:
    """More requests than rows, with priorities, small chunks and a small budget; some end while they wait."""
    events: list[Submit | Cancel] = [
        Submit(0, prompt_of(60 + n, 20 + 7 * n), replace(GREEDY, max_tokens=12), priority=(n == 6) + 2 * (n == 8))
        for n in range(10)
    ]
    events += [Cancel(2, 9), Cancel(2, 4), Cancel(4, 10)]
    return Script(tuple(events), options=SchedulerOptions(max_batch_size=3, max_num_tokens=24, max_chunk=10))


def outgrow(seed: int) -> Callable[[Limits, Texts], Script]:
    """Short prompts whose answers outgrow the pool together, so that the last ones are preempted, again and again."""

    def make(limits: Limits, texts: Texts) -> Script:
        rng = random.Random(seed)
        start = prompt_of(seed, limits.page_size + 1)
        events: list[Submit | Cancel] = []
        for number in range(6):
            params = SamplingParams(
                temperature=rng.choice([0.0, 0.8]),
                max_tokens=rng.choice([48, 64, 80]),
                drafts=("on", "on", "auto", "off")[number % 4],  # type: ignore[arg-type]
                seed=number,
            )
            prompt = (*(start if number % 3 == 0 else ()), *prompt_of(seed + 10 * number, 1 + number))
            events.append(Submit(0, prompt, params, priority=int(number == 5), streaming=number % 2 > 0))
        return Script((*events, Cancel(14, 3)))

    return make


def tight_budget(max_tokens: int) -> Callable[[Limits, Texts], Script]:
    """Rows that leave too few tokens of a step for drafts, or for one each, while prompts want their share."""

    def make(limits: Limits, texts: Texts) -> Script:
        events = [
            Submit(0, prompt_of(100 + n, size), replace(GREEDY, max_tokens=14, num_drafts=(None, 2)[n % 2]))
            for n, size in enumerate((2, 1, 3, 2, 20, 9))
        ]
        return Script(tuple(events), options=SchedulerOptions(max_batch_size=4, max_num_tokens=max_tokens))

    return make


def long_answers(cost: str) -> Callable[[Limits, Texts], Script]:
    """Automatic drafting over many steps, so that costs are learned and probes happen."""

    def make(limits: Limits, texts: Texts) -> Script:
        params = SamplingParams(temperature=0.0, max_tokens=140, drafts="auto", seed=0)
        prompts = [prompt_of(70, 12), prompt_of(71, 9)]
        right = (limits.num_drafts, limits.num_drafts // 2)
        events = [
            Submit(6 * n, prompt, params, right=right[n], text=texts(prompt, params))
            for n, prompt in enumerate(prompts)
        ]
        return Script(tuple(events), cost=dear_drafts) if cost == "dear" else Script(tuple(events))

    return make


def drafter_positions(limits: Limits, texts: Texts) -> Script:
    """Texts that grow beyond the drafter's positions, from places that differ by one."""
    events = [
        Submit(n // 3, prompt_of(110 + n, 12 + n), replace(GREEDY, max_tokens=44, draft_source=("both", None)[n % 2]))
        for n in range(6)
    ]
    return Script(tuple(events))


def ahead(seed: int, **options: object) -> Callable[[Limits, Texts], Script]:
    """Steady rows, so that steps go ahead of those that are read; meanwhile some end, leave, fail or come."""

    def make(limits: Limits, texts: Texts) -> Script:
        rng, shared = random.Random(seed), prompt_of(seed, 40)
        events: list[Submit | Cancel] = []
        for number, at in enumerate((0, 0, 1, 30, 31, 55)):
            params = SamplingParams(
                temperature=rng.choice([0.0, 0.7, 0.9]),
                max_tokens=rng.choice([60, 75, 90]),
                drafts=("on", "auto")[number % 2],  # type: ignore[arg-type]
                seed=seed + number,
            )
            prompt = (*shared[: 20 * (number % 3)], *prompt_of(seed + 10 * number, 3 + 5 * number))
            events.append(Submit(at, prompt, params, priority=int(number == 3), streaming=number % 3 > 0))
        events += [Cancel(18, 2), Cancel(41, 4)]
        return Script(tuple(events), eos_ids=(5, 9), **options)  # type: ignore[arg-type]

    return make


def ahead_stops(limits: Limits, texts: Texts) -> Script:
    """Rows that end at a stop token, or leave, while a step is ahead of them, at different places of their texts."""
    events: list[Submit | Cancel] = []
    for number, place in enumerate((12, 17, 23, 30, 60)):
        prompt, params = prompt_of(130 + number, 7), replace(GREEDY, temperature=0.9, max_tokens=60, seed=number)
        following = texts(prompt, params)[len(prompt) :]
        stops = (following[place],) if place < len(following) else ()
        events.append(Submit(0, prompt, replace(params, stop_token_ids=stops), streaming=number % 2 > 0))
    return Script((*events, Cancel(9, 4)))


def changing_rows(limits: Limits, texts: Texts) -> Script:
    """Automatic drafting with one to six rows that come and go, where drafts just about pay off."""
    events = []
    for number in range(10):
        prompt = prompt_of(140 + number, 4 + number)
        params = SamplingParams(temperature=0.0, max_tokens=24 + 6 * number, drafts="auto", seed=0)
        right, text = 2 + number % 3, texts(prompt, params)
        events.append(Submit(3 * number, prompt, params, right=right, text=text, streaming=False))
    return Script(tuple(events), cost=close_call)


def uneven_costs(most: tuple[int | None, ...], right: tuple[int, ...]) -> Callable[[Limits, Texts], Script]:
    """Automatic drafting where rows carry unlike numbers of drafts and no formula tells what a step costs.

    Args:
        most: `num_drafts` of the requests, in turn.
        right: their right drafts.
    """

    def make(limits: Limits, texts: Texts) -> Script:
        events = []
        for n in range(12):
            prompt, drafts = prompt_of(160 + n, 4 + n), most[n % len(most)]
            params = SamplingParams(temperature=0.0, max_tokens=30 + 5 * n, drafts="auto", num_drafts=drafts, seed=0)
            text = texts(prompt, params)
            events.append(Submit(4 * n, prompt, params, right=right[n % len(right)], text=text, streaming=False))
        return Script(tuple(events), cost=uneven)

    return make


def last_positions(limits: Limits, texts: Texts) -> Script:
    """Answers that run into max_seq_len and into the last pages of the pool."""
    params = SamplingParams(temperature=0.0, drafts="on", seed=0)
    events = [Submit(n, prompt_of(80 + n, limits.max_seq_len - 10 - 7 * n), params) for n in range(3)]
    return Script(tuple(events))


def faults(limits: Limits, texts: Texts) -> Script:
    """Steps that raise and rows that are not finite, while others wait, join and go on."""
    events = [Submit(2 * n, prompt_of(90 + n, 15 + 6 * n), GREEDY, streaming=n % 3 > 0) for n in range(8)]
    return Script(tuple(events), fails_at=frozenset({5, 14}), non_finite=frozenset({(2, 0), (8, 1), (11, 0)}))


def one_request(limits: Limits, texts: Texts) -> Script:
    """What examples/cpp/generate asks for."""
    return Script((Submit(0, (11, 12, 13, 14), GREEDY),))


def three_clients(limits: Limits, texts: Texts) -> Script:
    """What examples/cpp/stream asks for: the second client leaves at its fifth token. It is told so while the next step
    runs, so its cancellation comes before the one after."""
    prompts = ((11, 12, 13, 14), (21, 22, 23), (11, 12, 13, 14, 15, 16))
    events = [Submit(0, prompt, GREEDY) for prompt in prompts]
    return Script((*events, Cancel(FIFTH_TOKEN + 2, 2)))


CASES: dict[str, Case] = {
    "example_generate": Case("hspec", one_request),
    "example_stream": Case("hspec", three_clients),
    "accepted_lengths_hspec": Case("hspec", accepted_lengths),
    "accepted_lengths_target": Case("target", accepted_lengths),
    "accepted_lengths_dflash": Case("dflash", accepted_lengths),
    "shared_starts_hspec": Case("hspec", shared_starts),
    "shared_starts_eagle3": Case("eagle3", shared_starts, 40),
    "shared_starts_few_pages": Case("target", shared_starts, 9),
    "stops_hspec": Case("hspec", stops),
    "stops_target": Case("target", stops),
    "edited": Case("full", edited),
    "edited_few_pages": Case("full", edited, 6),
    "guided": Case("full", guided),
    "waiting_line_hspec": Case("hspec", waiting_line),
    "waiting_line_few_pages": Case("hspec", waiting_line, 14),
    "outgrow_hspec": Case("hspec", outgrow(11), 12),
    "outgrow_full": Case("full", outgrow(12), 12),
    "outgrow_target": Case("target", outgrow(13), 11),
    "outgrow_dflash": Case("dflash", outgrow(14), 12),
    "outgrow_eagle3": Case("eagle3", outgrow(15), 7),
    "tight_budget_hspec": Case("hspec", tight_budget(5)),
    "tight_budget_eagle3": Case("eagle3", tight_budget(11)),
    "ahead_hspec": Case("feeding", ahead(21)),
    "ahead_few_pages": Case("feeding", ahead(22), 16),
    "ahead_dear_drafts": Case("feeding", ahead(23, cost=dear_drafts)),
    "ahead_faults": Case("feeding", ahead(24, fails_at=frozenset({9, 52}), non_finite=frozenset({(38, 1)}))),
    "ahead_stops": Case("feeding", ahead_stops),
    "ahead_positions": Case("feeding", ahead(26), draft_max_position=100),
    "drafter_positions": Case("hspec", drafter_positions, draft_max_position=40),
    "ahead_eagle3": Case("feeding_eagle3", ahead(25), 24),
    "auto_cheap_drafts": Case("hspec", long_answers("cheap")),
    "auto_changing_rows": Case("hspec", changing_rows),
    "auto_uneven_costs": Case("hspec", uneven_costs((None, 2, 5, None), (1, 3, 5))),
    "auto_uneven_drafts": Case("hspec", uneven_costs((3, 4, None), (2, 4, 6))),
    "auto_dear_drafts": Case("hspec", long_answers("dear")),
    "auto_lookup": Case("target", long_answers("dear")),
    "last_positions_hspec": Case("hspec", last_positions),
    "last_positions_few_pages": Case("hspec", last_positions, 20),
    "faults_hspec": Case("hspec", faults),
    "faults_target": Case("target", faults, 20),
    "traffic_hspec_1": Case("hspec", traffic(1)),
    "traffic_hspec_2": Case("hspec", traffic(2), 24),
    "traffic_hspec_3": Case("hspec", traffic(3), 10),
    "traffic_full_4": Case("full", traffic(4), 24),
    "traffic_full_5": Case("full", traffic(5, cost=dear_drafts)),
    "traffic_target_6": Case("target", traffic(6), 20),
    "traffic_dflash_7": Case("dflash", traffic(7), 24),
    "traffic_dflash_8": Case("dflash", traffic(8, options=SchedulerOptions(prefix_cache=False)), 24),
    "traffic_eagle3_9": Case("eagle3", traffic(9), 16),
    "traffic_eagle3_10": Case("eagle3", traffic(10, options=SchedulerOptions(max_chunk=7, max_num_tokens=16))),
}
