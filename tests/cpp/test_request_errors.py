# SPDX-License-Identifier: Apache-2.0
"""What both runtimes tell of a request that cannot be served: the same codes and texts, whatever the engine has."""

from __future__ import annotations

import ctypes
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import HspecError
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.guided import GuideMaker
from hspec_trt.runtime.intake import Intake
from hspec_trt.runtime.session import Limits
from hspec_trt.runtime.worker import EngineWorker
from tests.support.c_runtime import CError, CRuntime, Handle, LogitBias, Request
from tests.support.scripted import ScriptedSession, TextModel, make_limits

TRACES = Path(__file__).parents[1] / "golden" / "traces"
ENGINES = {"plain": "traffic_hspec_1", "few pages": "outgrow_full", "no drafter": "traffic_target_6"}
"""Recorded runs of engines without extensions, with all of them and a small pool, and without drafter."""
DRAFTS = ("off", "on", "auto")
SOURCES = ("drafter", "prompt_lookup", "both")

FLOATS = (-0.1, 0.0, -0.0, 1.0000000000000002, 100.5, 1e-46, 1e-05, 12345678.9, 1e16, 1.5e300, math.nan, math.inf)
WORDS = (
    "",
    "it's",
    'say "x"',
    "both ' and \"",
    "tab\tline\n",
    "\\",
    "\x00" * 0 + "\x01\x7f",
    "é€😀",
    "\u00ad\u2028",
    "\ufffd",
)
OPTIONS: tuple[dict[str, Any], ...] = (
    *({name: value} for name in ("temperature", "top_p", "min_p") for value in (*FLOATS, -math.inf)),
    *({f"{name}_penalty": value} for name in ("repetition", "presence", "frequency") for value in (*FLOATS, -math.inf)),
    *({"max_tokens": value} for value in (0, -7, 252, 10**6, 2**63 - 1)),
    *({"top_k": value} for value in (-1, 2**31 - 1, 2**31, -(2**63))),
    *({"seed": value} for value in (-2, -(2**63))),
    *({"min_tokens": value} for value in (-1, 3, 2**62)),
    *({"logprobs": value} for value in (-1, 1, 20, 21)),
    *({"num_drafts": value} for value in (-1, 6, 8, 99)),
    *({"draft_source": source, "drafts": drafts} for source in SOURCES for drafts in DRAFTS),
    *({"stop_token_ids": ids} for ids in ((-1,), (255,), (256,), (3, 2**31 - 1, 5))),
    *({"logit_bias": pairs} for pairs in (((-1, 0.0),), ((256, 1.0),), ((5, 1e4), (7, 10000.5)), ((5, math.nan),))),
    *({"logit_bias": pairs} for pairs in (((5, -0.0), (6, 1e-7)), ((5, math.inf), (300, 2.0)))),
    *({"stop": (word,)} for word in WORDS),
    *({"bad_words": (word,)} for word in WORDS),
    {"min_tokens": 9, "max_tokens": 8},
    {"min_tokens": 8, "max_tokens": 8},
    {"stop": ("", *(f"é{number}" for number in range(40)))},
    {"stop_token_ids": tuple(range(250, 300))},
    {"bad_words": ("", "😀" * 190)},
    {"bad_words": ("", *"\n" * 100)},
    {"logit_bias": tuple((token, -0.5) for token in range(240, 270))},
    {"stop": ("a", "")},
    {"stop": ("a",) * 65},
    {"bad_words": ("a", "b", "")},
    {"temperature": -1.0, "top_p": 2.0, "seed": -9},
    {
        "max_tokens": 0,
        "min_p": 7.0,
        "top_k": -3,
        "min_tokens": -1,
        "logprobs": 50,
        "num_drafts": 9,
        "stop": ("",),
        "stop_token_ids": (999,),
        "bad_words": ("",),
        "logit_bias": ((999, 1.0),),
        "repetition_penalty": 0.0,
        "presence_penalty": 200.0,
        "frequency_penalty": -200.0,
    },
)
PROMPTS: tuple[tuple[list[int], dict[str, Any]], ...] = (
    ([], {}),
    ([-1], {}),
    ([256], {}),
    ([3, 4, 2**31 - 1], {}),
    ([3, -(2**31)], {}),
    ([5] * 250, {"max_tokens": 7}),
    ([5] * 170, {"max_tokens": 9}),
    ([5] * 255, {}),
    ([5] * 256, {}),
    ([5] * 300, {"max_tokens": 5}),
    ([], {"temperature": -1.0}),
)
CASES = [*(([5, 6, 7], options) for options in OPTIONS), *PROMPTS]


def meta_of(engine: str) -> dict[str, Any]:
    with safe_open(TRACES / f"{ENGINES[engine]}.safetensors", "np") as file:
        read: dict[str, Any] = json.loads(file.metadata()["trace"])
    return read


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, runtime: CRuntime) -> Iterator[tuple[Intake, Handle]]:
    """Both runtimes on one engine without tokenizer."""
    meta, opened = meta_of(request.param), Handle()
    limits = Limits(**{**meta["limits"], "extensions": tuple(meta["limits"]["extensions"])})
    longest = min(limits.max_seq_len, (meta["num_pages"] - 1) * limits.page_size)
    path = str(TRACES / f"{ENGINES[request.param]}.safetensors").encode()
    runtime.call("engine_replay", path, ctypes.byref(opened))
    handle = runtime.create(opened)
    yield Intake(limits, longest, frozenset(), None, GuideMaker(None, limits.vocab_size, [])), handle
    runtime.free("runtime", handle)


def python_says(intake: Intake, prompt: list[int], options: dict[str, Any]) -> str:
    try:
        intake.make(prompt, SamplingParams(**options), lambda update: None)
    except HspecError as error:
        return str(error)
    return "accepted"


def as_request(runtime: CRuntime, prompt: list[int], options: dict[str, Any]) -> Request:
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name in ("stop", "bad_words"):
            array: Any = (ctypes.c_char_p * len(value))(*(word.encode() for word in value))
        elif name == "stop_token_ids":
            array = (ctypes.c_int32 * len(value))(*value)
        elif name == "logit_bias":
            array = (LogitBias * len(value))(*value)
        else:
            fields[name] = {"drafts": DRAFTS.index, "draft_source": SOURCES.index}.get(name, lambda same: same)(value)
            continue
        fields |= {name: array, f"num_{name}": len(value)}
    return runtime.request(prompt, **fields)


def cpp_says(runtime: CRuntime, handle: Handle, prompt: list[int], options: dict[str, Any]) -> str:
    try:
        number, answer = runtime.submit(handle, as_request(runtime, prompt, options))
    except CError as error:
        return str(error)
    runtime.library.hspec_rt_runtime_cancel(handle, ctypes.c_int64(number))
    runtime.step(handle)
    return "accepted" if answer.finish_reason == "cancelled" else f"ended by {answer.finish_reason}"


@pytest.mark.parametrize(("prompt", "options"), CASES, ids=lambda value: str(value)[:60])
def test_codes_and_texts_are_those_of_python(
    prompt: list[int], options: dict[str, Any], engine: tuple[Intake, Handle], runtime: CRuntime
) -> None:
    intake, handle = engine
    assert cpp_says(runtime, handle, prompt, options) == python_says(intake, prompt, options)


def test_the_cases_hold_every_code(engine: tuple[Intake, Handle]) -> None:
    """But those of what C cannot say: R104 no whole numbers, R209 several answers, R22x grammars."""
    told = [python_says(engine[0], prompt, options) for prompt, options in CASES]
    codes = set(re.findall(r"error\[(R\w+)\]", "\n".join(told)))
    ranges = {*range(101, 104), 106, *range(201, 209), *range(211, 218)}
    assert codes - {"R210"} == {f"R{code}" for code in ranges}
    assert ("R210" in codes) == (not engine[0]._limits.extensions) and "accepted" in told


def test_a_closed_engine(runtime: CRuntime) -> None:
    opened, session = Handle(), ScriptedSession(TextModel(61), make_limits())
    session.allocate(9)
    worker = EngineWorker(EngineCore(session))
    runtime.call("engine_replay", str(TRACES / "example_generate.safetensors").encode(), ctypes.byref(opened))
    handle = runtime.create(opened)
    runtime.call("runtime_close", handle, ctypes.c_int32(0))
    worker.close()
    with pytest.raises(HspecError) as told:
        worker.add([worker.core.make([5], SamplingParams(max_tokens=4), lambda update: None)])
    assert told.value.code == "R303"
    assert cpp_says(runtime, handle, [5], {"max_tokens": 4}) == str(told.value)
    runtime.free("runtime", handle)
