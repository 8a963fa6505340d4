# SPDX-License-Identifier: Apache-2.0
"""Penalties, biases, masks, lists of tokens on a real graph: as transformers' logits say, with drafts of any kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.edits import BANNED
from hspec_trt.runtime.lookup import ScriptedDrafts
from tests.support.scripted import Row, draw, raw_logprobs
from tests.unit.runtime.harness import Answer, drain

from .conftest import DRAFTERS, CoreFor, target_of, with_drafters

PROMPT = [3, 17, 42, 8, 25, 3, 17]
NUM_TOKENS = 30
Logits = Callable[[list[int]], NDArray[np.float32]]

OPTIONS = {
    "repetition": {"repetition_penalty": 1.4},
    "presence_and_frequency": {"presence_penalty": 1.0, "frequency_penalty": 0.6},
    "bias": {"logit_bias": ((9, 6.0), (106, -50.0))},
    "everything": {
        "repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2, "logit_bias": ((9, 3.0),),
        "min_tokens": 12, "top_p": 0.95, "min_p": 0.01, "top_k": 80,
    },
}  # fmt: skip


@cache
def logits_of(name: str) -> Logits:
    """transformers' logits of an engine's target after a text, float32 ``[V]``."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(target_of(name), dtype=torch.float32)

    def after(text: list[int]) -> NDArray[np.float32]:
        with torch.no_grad():
            return model(torch.tensor([text])).logits[0, -1].numpy()

    return after


def edited(logits: NDArray[np.float32], prompt: list[int], text: list[int], params: SamplingParams) -> NDArray:
    """The options' definitions, applied to one row."""
    seen = list({*prompt, *text})
    out = logits.copy()
    out[seen] = np.where(out[seen] > 0, out[seen] / params.repetition_penalty, out[seen] * params.repetition_penalty)
    for token in set(text):
        out[token] -= params.presence_penalty + params.frequency_penalty * text.count(token)
    for token, bias in params.logit_bias:
        out[token] += bias
    if len(text) < params.min_tokens:
        out[EOS] = BANNED
    return out


EOS = 77


def reference(logits: Logits, params: SamplingParams) -> list[int]:
    """REF: one token after the other from transformers' logits."""
    row = Row(params.temperature, params.top_p, params.min_p, params.top_k, params.seed or 0)
    text: list[int] = []
    while len(text) < NUM_TOKENS and EOS not in text:
        plain = logits([*PROMPT, *text])
        text.append(draw(plain, len(PROMPT) + len(text), row, edited(plain, PROMPT, text, params))[0])
    return text


def submit(core: EngineCore, params: SamplingParams, script: ScriptedDrafts | None = None) -> Answer:
    answer = Answer(PROMPT, params)
    core.add(core.make(PROMPT, params, answer.updates.append, streaming=True, host_drafts=script))
    return answer


@pytest.mark.parametrize(
    ("name", "option", "temperature"), with_drafters(product(OPTIONS, [0.0, 0.9]), short=[("everything", 0.9)])
)
def test_as_transformers_logits_say(name: str, option: str, temperature: float, core_for: CoreFor) -> None:
    logits = logits_of(name)
    params = SamplingParams(temperature=temperature, seed=21, max_tokens=NUM_TOKENS, drafts="on", **OPTIONS[option])  # type: ignore[arg-type]
    text = reference(logits, params)
    plain = reference(logits, SamplingParams(temperature=temperature, seed=21))
    assert text != plain, "the option does nothing here"
    core = core_for(name, eos_ids=frozenset({EOS}))
    scripts = [ScriptedDrafts(np.array([*PROMPT, *text], np.int32), right, 256) for right in (0, 1, 4, 7)]
    answers = [
        submit(core, replace(params, drafts="off")),
        submit(core, params),
        *(submit(core, params, script) for script in scripts),
    ]
    beside = submit(core, SamplingParams(temperature=temperature, seed=21, max_tokens=NUM_TOKENS))
    drain(core)
    assert [answer.ids for answer in answers] == [text] * len(answers)
    assert beside.ids == plain  # a row without options is not touched by its company
    for answer in answers:  # log-probabilities are the raw distribution's, whatever was edited
        raw = [raw_logprobs(logits([*PROMPT, *text[:i]]))[token] for i, token in enumerate(text)]
        np.testing.assert_allclose(answer.logprobs, raw, atol=2e-4)


@pytest.mark.parametrize(("name", "right"), with_drafters([(0,), (2,), (7,)], short=[(2,)]))
def test_most_likely_tokens(name: str, right: int, core_for: CoreFor) -> None:
    """Case C14."""
    logits = logits_of(name)
    params = SamplingParams(temperature=0.7, seed=2, max_tokens=12, drafts="on", logprobs=20)
    core = core_for(name)
    first = submit(core, replace(params, drafts="off"))
    drain(core)
    second = submit(core, params, ScriptedDrafts(np.array([*PROMPT, *first.ids], np.int32), right, 256))
    drain(core)
    for answer in (first, second):
        tops = [top for update in answer.updates for top in update.top_logprobs]
        assert len(tops) == len(answer.ids) == 12
        for number, top in enumerate(tops):
            raw = raw_logprobs(logits([*PROMPT, *answer.ids[:number]]))
            np.testing.assert_allclose([value for _, value in top], np.sort(raw)[::-1][:20], atol=2e-4)
            np.testing.assert_allclose(raw[[token for token, _ in top]], [value for _, value in top], atol=2e-4)


@pytest.mark.parametrize("name", DRAFTERS)
def test_padding_columns_are_never_drawn(name: str, core_for: CoreFor) -> None:
    """A mask that bans every token of the vocabulary but one leaves that one, not a padding column of the logits."""

    class OnlyNine:
        def rows(self, text: NDArray[np.int32], drafts: list[int]) -> list[NDArray[np.bool_]]:
            return [np.arange(256) == 9 for _ in range(len(drafts) + 1)]

    core = core_for(name)
    answer = Answer(PROMPT, SamplingParams(temperature=1.0, seed=1, max_tokens=6, drafts="on"))
    seq = core.make(PROMPT, answer.params, answer.updates.append)
    seq.shaper.guide = OnlyNine()
    core.add(seq)
    drain(core)
    assert answer.ids == [9] * 6
