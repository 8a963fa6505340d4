# SPDX-License-Identifier: Apache-2.0
"""Every request fault has its code and names the value that would do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hspec_trt.config.build import EXTENSION_NAMES
from hspec_trt.config.sampling import GuidedDecodingParams, SamplingParams
from hspec_trt.errors import HspecError
from hspec_trt.runtime.checks import check_params, check_prompt
from hspec_trt.runtime.session import Limits

LIMITS = Limits(
    vocab_size=61,
    num_drafts=4,
    page_size=16,
    page_bytes=1024,
    max_rows=4,
    max_tokens=64,
    max_seq_len=256,
    has_drafter=True,
    draft_max_position=256,
)


def codes(error: HspecError) -> list[str]:
    return [fault.code for fault in error.faults]


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([-1], "R103"),
        ([61], "R103"),
        ([3, 2**31], "R103"),
        ([3, 2**63], "R103"),
        ([], "R102"),
        ([1.0], "R104"),
        ([1, "2"], "R104"),
        ([True], "R104"),
        ([None], "R104"),
        ([3] * 256, "R101"),
    ],
)
def test_bad_prompts(ids: list[int], code: str) -> None:
    """Case A20."""
    with pytest.raises(HspecError) as caught:
        check_prompt(ids, None, LIMITS, 256)
    assert codes(caught.value) == [code]


def test_outside_vocabulary_names_token_place_and_range() -> None:
    with pytest.raises(HspecError, match=r"prompt token 70 at index 1 is outside the vocabulary \[0, 61\)"):
        check_prompt([1, 70], None, LIMITS, 256)


def test_exact_longest_allowed_value() -> None:
    with pytest.raises(HspecError, match=r"prompt 250 \+ max_tokens 7 > max_seq_len 256.*allowed max_tokens is 6"):
        check_prompt([1] * 250, 7, LIMITS, 256)
    check_prompt([1] * 250, 6, LIMITS, 256)
    with pytest.raises(HspecError, match="longest allowed prompt is 255"):
        check_prompt([1] * 256, None, LIMITS, 256)
    check_prompt([1] * 255, None, LIMITS, 256)
    check_prompt(np.ones(255, np.int64), 1, LIMITS, 256)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"temperature": -0.1}, "R201"),
        ({"temperature": float("nan")}, "R201"),
        ({"temperature": float("inf")}, "R201"),
        ({"temperature": "0.5"}, "R201"),
        ({"temperature": None}, "R201"),
        ({"top_p": 0.0}, "R202"),
        ({"top_p": 1.01}, "R202"),
        ({"min_p": -0.1}, "R203"),
        ({"min_p": 1.5}, "R203"),
        ({"top_k": -1}, "R204"),
        ({"top_k": 2**31}, "R204"),
        ({"top_k": 1.5}, "R204"),
        ({"seed": -1}, "R205"),
        ({"seed": 2**63}, "R205"),
        ({"seed": 0.5}, "R205"),
        ({"max_tokens": 0}, "R106"),
        ({"max_tokens": 2.0}, "R106"),
        ({"max_tokens": True}, "R106"),
        ({"stop": ("",)}, "R206"),
        ({"stop": ("\ufffd",)}, "R206"),
        ({"stop": (1,)}, "R206"),
        ({"stop": ("a", "\ud800b")}, "R206"),
        ({"stop": ("a",) * 65}, "R206"),
        ({"stop_token_ids": (61,)}, "R207"),
        ({"stop_token_ids": (-1,)}, "R207"),
        ({"stop_token_ids": (1.0,)}, "R207"),
        ({"drafts": "maybe"}, "R208"),
        ({"draft_source": "oracle"}, "R208"),
        ({"num_drafts": 0}, "R208"),
        ({"num_drafts": 99}, "R208"),
        ({"num_drafts": 1.0}, "R208"),
        ({"n": 0}, "R209"),
        ({"repetition_penalty": 1.3}, "R210"),
        ({"presence_penalty": 0.5}, "R210"),
        ({"frequency_penalty": 0.5}, "R210"),
        ({"logit_bias": ((5, 100.0),)}, "R210"),
        ({"bad_words": ("x",)}, "R210"),
        ({"min_tokens": 8}, "R210"),
        ({"logprobs": 2}, "R210"),
        ({"guided_decoding": GuidedDecodingParams(regex="a+")}, "R210"),
    ],
)
def test_bad_options(change: dict[str, object], code: str) -> None:
    with pytest.raises(HspecError) as caught:
        check_params(replace(SamplingParams(), **change), LIMITS)
    assert codes(caught.value) == [code]
    assert repr(next(iter(change.values())))[:200] in str(caught.value)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"repetition_penalty": 0.0}, "R212"),
        ({"repetition_penalty": float("nan")}, "R212"),
        ({"presence_penalty": 101.0}, "R213"),
        ({"frequency_penalty": "1"}, "R214"),
        ({"logit_bias": ((61, 1.0),)}, "R215"),
        ({"logit_bias": ((5, float("inf")),)}, "R215"),
        ({"logit_bias": ((5,),)}, "R215"),
        ({"logit_bias": ((0.5, 1.0),)}, "R215"),
        ({"bad_words": ("",)}, "R216"),
        ({"bad_words": ("\udfff",)}, "R216"),
        ({"min_tokens": -1}, "R211"),
        ({"min_tokens": 9, "max_tokens": 8}, "R211"),
        ({"min_tokens": 1.5}, "R211"),
        ({"logprobs": 21}, "R217"),
        ({"logprobs": True}, "R217"),
        ({"guided_decoding": GuidedDecodingParams()}, "R220"),
        ({"guided_decoding": GuidedDecodingParams(regex="a", json="{}")}, "R220"),
        ({"guided_decoding": GuidedDecodingParams(regex="a"), "ignore_eos": True}, "R220"),
    ],
)
def test_bad_options_of_an_engine_with_all_extensions(change: dict[str, object], code: str) -> None:
    full = replace(LIMITS, extensions=EXTENSION_NAMES)
    with pytest.raises(HspecError) as caught:
        check_params(replace(SamplingParams(), **change), full)
    assert codes(caught.value) == [code]


def test_good_options_of_an_engine_with_all_extensions() -> None:
    full = replace(LIMITS, extensions=EXTENSION_NAMES)
    good = SamplingParams(
        min_tokens=5,
        repetition_penalty=1.3,
        presence_penalty=-0.5,
        frequency_penalty=2,
        logit_bias=((5, 100.0), (np.int64(6), -3)),
        bad_words=("x",),
        logprobs=20,
        guided_decoding=GuidedDecodingParams(choice=("a", "b")),
    )
    check_params(good, full)


@pytest.mark.parametrize(
    "change",
    [
        {"stop": ("x" * 100_000,) * 65},
        {"stop_token_ids": tuple(range(1000))},
        {"logit_bias": tuple((token, 1.0) for token in range(10_000))},
        {"bad_words": ("y" * 100_000, "")},
        {"seed": 10**4000},
        {"seed": 10**5000},
        {"drafts": "z" * 100_000},
    ],
)
def test_long_values_are_cut(change: dict[str, object]) -> None:
    with pytest.raises(HspecError) as caught:
        check_params(replace(SamplingParams(), **change), LIMITS)
    assert " ..." in str(caught.value) or "too long" in str(caught.value)
    assert all(len(fault.message) < 400 for fault in caught.value.faults)


def test_several_faults_in_one_report() -> None:
    with pytest.raises(HspecError) as caught:
        check_params(SamplingParams(temperature=-1.0, top_p=2.0, seed=-5), LIMITS)
    assert codes(caught.value) == ["R201", "R202", "R205"]


def test_edges_that_are_fine() -> None:
    check_params(SamplingParams(), LIMITS)
    check_params(
        SamplingParams(temperature=0, top_p=1, min_p=1.0, top_k=2**31 - 1, seed=2**63 - 1, stop=("x",)), LIMITS
    )
    check_params(SamplingParams(temperature=np.float32(0.5), top_k=np.int64(3), seed=np.int32(1)), LIMITS)


def test_drafter_asked_of_an_engine_without_one() -> None:
    bare = replace(LIMITS, has_drafter=False)
    check_params(SamplingParams(drafts="on"), bare)
    check_params(SamplingParams(draft_source="prompt_lookup"), bare)
    check_params(SamplingParams(drafts="off", draft_source="drafter"), bare)
    with pytest.raises(HspecError, match="the engine has no drafter"):
        check_params(SamplingParams(draft_source="drafter"), bare)
