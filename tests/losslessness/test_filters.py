# SPDX-License-Identifier: Apache-2.0
"""Filters on a real graph: what is drawn follows transformers' filtered distribution, the same with drafts and without;
and every log-probability is that of the target's own row, whatever was accepted before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.lookup import ScriptedDrafts
from tests.support.distribution import PROMPT, p_value
from tests.support.sampling_reference import filtered_softmax
from tests.unit.runtime.harness import Answer, drain

from .conftest import CoreFor, target_of, with_drafters

VOCAB_SIZE = 256
SETS: dict[str, tuple[float, dict[str, float]]] = {
    "top_k": (0.7, {"top_k": 12}),
    "top_p": (1.0, {"top_p": 0.9}),  # case C7
    "min_p": (1.3, {"min_p": 0.1}),
    "all": (1.3, {"top_k": 20, "top_p": 0.8, "min_p": 0.02}),
}
LOGPROB_ERROR = 1e-5


@cache
def model(name: str) -> transformers.PreTrainedModel:
    return transformers.AutoModelForCausalLM.from_pretrained(target_of(name), dtype=torch.float32)


def logits_after(name: str, prompts: list[list[int]]) -> NDArray[np.float32]:
    """transformers' logits after each of some prompts of one length: ``[prompts, V]``."""
    with torch.no_grad():
        return model(name)(torch.tensor(prompts), logits_to_keep=1).logits[:, -1].numpy()


def draw_pairs(core: EngineCore, count: int, params: Callable[[int], SamplingParams]) -> NDArray[np.int64]:
    said: list[list[int]] = [[] for _ in range(count)]
    for seed in range(count):
        core.add(core.make(PROMPT, params(seed), lambda update, seed=seed: said[seed].extend(update.token_ids)))
    drain(core, limit=10**6)
    return np.array(said)[:, :2]  # a third token is asked for, because the last one is never drafted


@pytest.mark.parametrize(
    ("name", "which", "count"), with_drafters([("all", 800), *product(SETS, [3000])], short=[("all", 800)])
)
def test_filtered_draws_have_the_targets_distribution(name: str, which: str, count: int, core_for: CoreFor) -> None:
    temperature, filters = SETS[which]
    pairs = {}
    for drafts in ("on", "off"):

        def params(seed: int, drafts: str = drafts) -> SamplingParams:
            return SamplingParams(
                temperature=temperature,
                seed=seed * 7919 + 13,
                max_tokens=3,
                ignore_eos=True,
                drafts=drafts,  # type: ignore[arg-type]
                **filters,  # type: ignore[arg-type]
            )

        core = core_for(name, max_rows=64, num_pages=200)
        pairs[drafts] = draw_pairs(core, count, params)
        assert (core.stats.drafts.drafted > 0) == (drafts == "on")
    np.testing.assert_array_equal(pairs["on"], pairs["off"])

    first = filtered_softmax(logits_after(name, [PROMPT])[0], temperature, **filters)  # type: ignore[arg-type]
    rows = logits_after(name, [[*PROMPT, token] for token in range(VOCAB_SIZE)])
    joint = first[:, None] * np.array(
        [filtered_softmax(row, temperature, **filters) for row in rows]  # type: ignore[arg-type]
    )
    observed = np.zeros((VOCAB_SIZE, VOCAB_SIZE), np.int64)
    np.add.at(observed, (pairs["on"][:, 0], pairs["on"][:, 1]), 1)
    assert observed[joint == 0].sum() == 0, "a token was drawn that the filters leave out"
    assert 1 < np.count_nonzero(first) < VOCAB_SIZE // 2
    for counts, expected in ((observed.sum(1), first), (observed.ravel(), joint.ravel())):
        assert p_value(counts, expected) > 1e-4


@pytest.mark.parametrize(
    ("name", "right", "temperature"), with_drafters(product(range(8), [0.0, 1.3]), short=[(2, 1.3), (5, 0.0)])
)
def test_log_probabilities_at_every_accepted_length(
    name: str, right: int, temperature: float, core_for: CoreFor
) -> None:
    """Case C14: one entry for each token, of the unfiltered row that the token was drawn from."""
    core = core_for(name)
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=25, drafts="off", top_k=30, ignore_eos=True)

    def said(script: ScriptedDrafts | None, **changes: object) -> Answer:
        answer = Answer(PROMPT, SamplingParams(**(vars(params) | changes)))  # type: ignore[arg-type]
        core.add(core.make(PROMPT, answer.params, answer.updates.append, streaming=True, host_drafts=script))
        drain(core)
        return answer

    plain = said(None)
    text = np.array([*PROMPT, *plain.ids], np.int32)
    answer = said(ScriptedDrafts(text, right, VOCAB_SIZE), drafts="on")
    assert answer.ids == plain.ids
    drafts = answer.last.drafts
    assert drafts is not None
    assert drafts.lengths[min(right, core.session.limits.num_drafts) + 1] > 0
    with torch.no_grad():
        logits = model(name)(torch.tensor([text[:-1].tolist()])).logits[0, len(PROMPT) - 1 :].double()
    want = torch.log_softmax(logits, -1).numpy()[np.arange(25), answer.ids]
    assert len(answer.logprobs) == 25
    np.testing.assert_allclose(answer.logprobs, want, rtol=0, atol=LOGPROB_ERROR * float(logits.abs().max()))
