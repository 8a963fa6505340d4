# SPDX-License-Identifier: Apache-2.0
"""Penalties, biases, bad words and least lengths: each row sees the text before it, accepted drafts or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hspec_trt.config.build import EXTENSION_NAMES
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.edits import BANNED, RowEdits, TextEdits
from tests.support.edit_reference import generate_edited, plain_edits
from tests.support.scripted import Row, TextModel
from tests.support.tokenizers_toy import byte_ids, ours
from tests.unit.runtime.harness import Answer, check_empty, drain, make_core, submit

VOCAB = 13
EOS, STOP = 7, 3


def dense(edits: RowEdits) -> tuple[np.ndarray, np.ndarray]:
    """Scales and biases of the whole vocabulary; each id stands once."""
    assert len(set(edits.ids.tolist())) == edits.ids.size
    scales, biases = np.ones(VOCAB, np.float32), np.zeros(VOCAB, np.float32)
    scales[edits.ids], biases[edits.ids] = edits.scales, edits.biases
    return scales, biases


tokens = st.lists(st.integers(0, VOCAB - 1), max_size=12)


@given(
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8),
    steps=st.lists(st.tuples(tokens, st.lists(st.integers(0, VOCAB - 1), max_size=4)), max_size=4),
    words=st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=3), max_size=3),
    options=st.tuples(
        st.sampled_from([1.0, 1.3, 0.8]), st.sampled_from([0.0, 0.5]), st.sampled_from([0.0, 0.25]), st.integers(0, 20)
    ),
    bias=st.lists(st.tuples(st.integers(0, VOCAB - 1), st.sampled_from([-2.0, 5.0])), max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_rows_equal_the_definitions(
    prompt: list[int],
    steps: list[tuple[list[int], list[int]]],
    words: list[list[int]],
    options: tuple[float, float, float, int],
    bias: list[tuple[int, float]],
) -> None:
    """Text in runs of any length, drafts of which none need be right; case C10 and F7."""
    repetition, presence, frequency, least = options
    params = SamplingParams(
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        min_tokens=least,
        logit_bias=tuple(bias),
    )
    edits, text = TextEdits(params, np.array(prompt, np.int32), {EOS, STOP}, words), []
    for run, drafts in steps:
        text += run
        rows = edits.rows(np.array([*prompt, *text], np.int32), drafts)
        assert len(rows) == len(drafts) + 1
        for number, row in enumerate(rows):
            scales, biases = dense(row)
            expected_scales, expected_biases = plain_edits(
                params, prompt, text + drafts[:number], VOCAB, {EOS, STOP}, words
            )
            banned = expected_biases == np.float32(BANNED)
            np.testing.assert_array_equal(banned, biases <= np.float32(BANNED) / 2)
            np.testing.assert_allclose(biases[~banned], expected_biases[~banned], atol=1e-6)
            np.testing.assert_allclose(scales[~banned], expected_scales[~banned])


@pytest.mark.parametrize("right", range(5))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"presence_penalty": 1.5, "frequency_penalty": 0.7},
        {"logit_bias": ((5, 100.0),)},
        {"logit_bias": ((5, 4.0), (2, -100.0)), "repetition_penalty": 1.1},
        {"min_tokens": 8},
    ],
    ids=str,
)
def test_drafts_change_nothing(options: dict[str, object], temperature: float, right: int) -> None:
    """Cases C10, C11, F7 through the loop: a cycle of two that a penalty must break, at every accepted length."""
    model = TextModel(VOCAB, spread=1.0, cycle=(4, 9))
    core = make_core(
        model=model, vocab_size=VOCAB, extensions=EXTENSION_NAMES, accept=lambda s, p: right, eos_ids=frozenset({EOS})
    )
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=24, drafts="on", **options)  # type: ignore[arg-type]
    answer = submit(core, [1, 4], params)
    drain(core)
    text = generate_edited(model, [1, 4], 24, Row(temperature, seed=3), params, {EOS, STOP})
    if EOS in text:
        text = text[: text.index(EOS) + 1]
    assert answer.ids == text
    check_empty(core)


def test_penalties_beside_plain_rows_and_preemption() -> None:
    model = TextModel(VOCAB, spread=1.0)
    core = make_core(model=model, vocab_size=VOCAB, extensions=EXTENSION_NAMES, accept=lambda s, p: p % 5, num_pages=40)
    answers = []
    for number in range(8):
        options = {"repetition_penalty": 1.2, "frequency_penalty": 0.3} if number % 2 else {}
        params = SamplingParams(temperature=0.8, seed=number, max_tokens=60, drafts="on", **options)  # type: ignore[arg-type]
        answers.append(submit(core, [number + 1] * 10, params))
    drain(core)
    assert core.stats.preemptions > 0
    for number, answer in enumerate(answers):
        assert answer.ids == generate_edited(model, answer.prompt, 60, Row(0.8, seed=number), answer.params, {EOS})


def test_bad_words_in_the_middle_and_after_a_space() -> None:
    model = TextModel(264, cycle=tuple(byte_ids("xabcq")))
    decoder = ours("byte_level")

    def run(words: tuple[str, ...]) -> Answer:
        core = make_core(model=model, vocab_size=264, extensions=EXTENSION_NAMES, decoder=decoder)
        answer = submit(core, byte_ids("x"), SamplingParams(temperature=0.0, max_tokens=6, bad_words=words))
        drain(core)
        return answer

    assert decoder.decode(run(()).ids) == "abcqxa"
    assert "abc" not in decoder.decode(run(("abc",)).ids)
    assert decoder.decode(run(("abc",)).ids).startswith("ab")
    assert "b" not in decoder.decode(run(("b",)).ids)


@pytest.mark.parametrize("right", range(5))
def test_most_likely_tokens_of_every_position(right: int) -> None:
    """Case C14: one list per token of the text, from the row that gave it."""
    model = TextModel(61)
    core = make_core(model=model, extensions=EXTENSION_NAMES, accept=lambda s, p: right)
    params = SamplingParams(temperature=0.0, max_tokens=20, drafts="on", logprobs=3)
    answer, plain = submit(core, [1, 2], params), submit(core, [3], SamplingParams(temperature=0.0, max_tokens=9))
    drain(core)
    tops = [top for update in answer.updates for top in update.top_logprobs]
    assert [top[0][0] for top in tops] == answer.ids
    np.testing.assert_allclose([top[0][1] for top in tops], answer.logprobs, atol=1e-5)
    assert all(len(top) == 3 and top[0][1] >= top[1][1] >= top[2][1] for top in tops)
    assert not any(update.top_logprobs for update in plain.updates)
