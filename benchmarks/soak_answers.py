# SPDX-License-Identifier: Apache-2.0
"""What the soak's answers must be: texts that were said alone without drafts, cut by the stop rules told anew here."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hspec_trt import LLM, SamplingParams
from hspec_trt.config.sampling import GuidedDecodingParams
from hspec_trt.runtime.results import CompletionOutput

LENGTH = 80
NUM_TEXTS = 40
STOPS = ("e", "th", "a ", "\n", "qz")
GUIDES = (
    GuidedDecodingParams(regex="[a-f ]{5,40}"),
    GuidedDecodingParams(json='{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'),
    GuidedDecodingParams(choice=("yes", "no", "perhaps")),
)


@dataclass(frozen=True)
class Known:
    """A prompt with options, and its two answers (n = 2) without drafts or company.

    Attributes:
        cut: the answers are `LENGTH` tokens long and may be cut by length, stop ids and stop strings.
    """

    prompt: list[int]
    params: SamplingParams
    answers: list[CompletionOutput]
    cut: bool


def known_texts(llm: LLM, rng: random.Random) -> list[Known]:
    """Answers to random prompts, of which many share their start, under random options."""
    shared = [rng.randrange(256) for _ in range(40)]
    known = []
    for number in range(NUM_TEXTS):
        prompt = [*shared[: rng.choice([0, 16, 40])], *(rng.randrange(256) for _ in range(rng.choice([1, 7, 16, 30])))]
        params = _random_params(rng, 1000 * number)
        answers = llm.generate(prompt, params).outputs
        known.append(Known(prompt, params, answers, cut=params.ignore_eos))
    return known


def _random_params(rng: random.Random, seed: int) -> SamplingParams:
    params = SamplingParams(
        max_tokens=LENGTH,
        temperature=rng.choice([0.0, 0.7, 1.3]),
        top_k=rng.choice([0, 0, 30]),
        top_p=rng.choice([1.0, 0.9]),
        min_p=rng.choice([0.0, 0.05]),
        seed=seed,
        n=2,
        ignore_eos=True,
        drafts="off",
    )
    kind = rng.choice(["plain", "plain", "edits", "edits", "guide", "minimum"])
    if kind == "guide":
        return replace(params, guided_decoding=rng.choice(GUIDES), ignore_eos=False)
    if kind == "minimum":
        stops = tuple(rng.sample(range(256), 8))
        return replace(params, min_tokens=rng.randint(1, 40), stop_token_ids=stops, ignore_eos=False)
    if kind == "edits":
        return replace(
            params,
            repetition_penalty=rng.choice([1.0, 1.2]),
            presence_penalty=rng.choice([0.0, 0.5]),
            frequency_penalty=rng.choice([0.0, 0.2]),
            logit_bias=rng.choice([(), ((9, 4.0), (30, -5.0))]),
            bad_words=rng.choice([(), ("e", "th")]),
            logprobs=rng.choice([0, 3]),
        )
    return params


def varied(known: Known, rng: random.Random) -> SamplingParams:
    """The request's options for this time: other lengths and stop rules where they only cut, and any drafts."""
    params = replace(
        known.params,
        n=rng.choice([1, 1, 1, 2]),
        drafts=rng.choice(["on", "off", "auto"]),
        draft_source=rng.choice([None, "prompt_lookup", "both"]),
    )
    if not known.cut:
        return params
    return replace(
        params,
        max_tokens=rng.randint(1, LENGTH),
        stop_token_ids=tuple(rng.sample(range(256), rng.choice([0, 0, 3]))),
        stop=tuple(rng.sample(STOPS, rng.choice([0, 0, 1, 2]))),
    )


def expected(llm: LLM, alone: CompletionOutput, params: SamplingParams, *, cut: bool) -> tuple[list[int], str, str]:
    """Ids, text and finish reason of an answer under the request's own stop rules."""
    ids = alone.token_ids
    if not cut:
        return ids, alone.text, str(alone.finish_reason)
    for count in range(1, len(ids) + 1):
        if ids[count - 1] in params.stop_token_ids:
            return ids[:count], _text(llm, ids[: count - 1]), "stop_token"
        text = _text(llm, ids[:count])
        places = [place for stop in params.stop if (place := text.find(stop)) >= 0]
        if places:
            return ids[:count], text[: min(places)], "stop_string"
        if count == params.max_tokens:
            return ids[:count], text, "length"
    raise AssertionError("the text alone is shorter than what is asked for")


def fault_of(
    llm: LLM, known: Known, params: SamplingParams, answers: Sequence[CompletionOutput], *, cancelled: bool
) -> str | None:
    """What is wrong with the answers to one request, in words; None where nothing is."""
    if len(answers) != params.n:
        return f"{len(answers)} answers of {params.n}"
    for answer, alone in zip(answers, known.answers, strict=False):
        ids, text, reason = expected(llm, alone, params, cut=known.cut)
        count = len(answer.token_ids)
        if answer.finish_reason == "error" or (answer.finish_reason == "cancelled" and cancelled):
            right = answer.token_ids == ids[:count]
        else:
            right = (answer.token_ids, answer.text, answer.finish_reason) == (ids, text, reason)
        if not right:
            found = f"{answer.finish_reason} {answer.token_ids} {answer.text!r}"
            return f"{params}: {found}, expected {reason} {ids} {text!r}"
        if answer.logprobs != alone.logprobs[:count] or answer.top_logprobs != alone.top_logprobs[:count]:
            return f"{params}: other log-probabilities"
        if answer.drafts.num_tokens != count:
            return f"{params}: {answer.drafts.num_tokens} tokens counted of {count}"
    return None


def _text(llm: LLM, ids: Sequence[int]) -> str:
    assert llm.tokenizer is not None
    return llm.tokenizer.decode(ids)
