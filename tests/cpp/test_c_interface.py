# SPDX-License-Identifier: Apache-2.0
"""The C interface from another language: recorded runs through it, errors as handles, and misuse told in words."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from tests.support.c_runtime import Answer, CError, CRuntime, Handle, RuntimeOptions

TRACES = Path(__file__).parents[1] / "golden" / "traces"
DRAFTS = {"off": 0, "on": 1, "auto": 2}
SOURCES = {"drafter": 0, "prompt_lookup": 1, "both": 2}


def trace_of(path: Path) -> dict[str, Any]:
    with safe_open(path, "np") as file:
        read: dict[str, Any] = json.loads(file.metadata()["trace"])
    return read


def fields_of(submitted: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in submitted["params"].items() if value is not None}
    fields["drafts"] = DRAFTS[fields.get("drafts", "auto")]
    if "draft_source" in fields:
        fields["draft_source"] = SOURCES[fields["draft_source"]]
    return fields | {"priority": submitted["priority"], "streaming": submitted["streaming"]}


def replayed(runtime: CRuntime, path: Path) -> list[Answer]:
    trace, engine = trace_of(path), Handle()
    runtime.call("engine_replay", str(path).encode(), ctypes.byref(engine))
    eos = (ctypes.c_int32 * len(trace["eos_ids"]))(*trace["eos_ids"])
    options = {name: value for name, value in trace["options"].items() if value is not None}
    handle = runtime.create(engine, eos_ids=eos, num_eos_ids=len(eos), **options)
    answers, ids, steps, events = [], [], 0, list(trace["events"])
    while True:
        while events and events[0]["at"] <= steps:
            event = events.pop(0)
            if "submit" in event:
                request = runtime.request(event["submit"]["prompt"], **fields_of(event["submit"]))
                number, answer = runtime.submit(handle, request)
                ids.append(number)
                answers.append(answer)
            else:
                runtime.library.hspec_rt_runtime_cancel(handle, ctypes.c_int64(ids[event["cancel"] - 1]))
        if not runtime.step(handle) and not events:
            break
        steps += 1
    runtime.free("runtime", handle)
    return answers


@pytest.mark.parametrize("name", ["example_generate", "example_stream"])
def test_a_recorded_run(runtime: CRuntime, name: str) -> None:
    answers, wanted = (
        replayed(runtime, TRACES / f"{name}.safetensors"),
        trace_of(TRACES / f"{name}.safetensors")["answers"],
    )
    assert len(answers) == len(wanted)
    for answer, recorded in zip(answers, wanted, strict=True):
        assert answer.final_ids == answer.token_ids == recorded["token_ids"]
        assert answer.finish_reason == recorded["finish"]
        assert answer.error == (recorded["error"] or "")
        lengths = {str(length): count for length, count in enumerate(answer.accepted_lengths) if count}
        assert lengths == recorded["lengths"]


def test_faults_of_a_request_are_told_together(runtime: CRuntime) -> None:
    engine = Handle()
    runtime.call("engine_replay", str(TRACES / "example_generate.safetensors").encode(), ctypes.byref(engine))
    handle = runtime.create(engine)
    with pytest.raises(CError) as caught:
        runtime.submit(handle, runtime.request([1, 2], temperature=-1.0, top_p=2.0))
    assert len(caught.value.faults) == 2
    assert str(caught.value).count("error[") == 2
    for wrong in ({"drafts": 7}, {"draft_source": 9}, {"size": 0}, {"stop": None, "num_stop": 1}):
        with pytest.raises(CError, match=r"^error\[R330\]"):
            runtime.submit(handle, runtime.request([1, 2], **wrong))
    runtime.call("runtime_close", handle, ctypes.c_int32(1))
    with pytest.raises(CError, match=r"^error\[R303\]"):
        runtime.submit(handle, runtime.request([1, 2]))
    runtime.free("runtime", handle)


def test_null_is_told_and_freed(runtime: CRuntime) -> None:
    for kind in ("error", "folder", "engine", "runtime"):
        runtime.free(kind, Handle())
    for name, arguments in (
        ("folder_open", (None, 0, ctypes.byref(Handle()))),
        ("engine_load", (None, None, ctypes.byref(Handle()))),
        ("engine_replay", (None, ctypes.byref(Handle()))),
        ("runtime_create", (None, None, ctypes.byref(Handle()))),
    ):
        with pytest.raises(CError, match=r"^error\[R330\]"):
            runtime.call(name, *arguments)


def test_a_program_that_knows_fewer_options(runtime: CRuntime) -> None:
    engine, handle, error = Handle(), Handle(), Handle()
    runtime.call("engine_replay", str(TRACES / "example_generate.safetensors").encode(), ctypes.byref(engine))
    options = RuntimeOptions(size=RuntimeOptions.codec.offset)  # nothing behind is read
    options.max_batch_size = -5
    assert (
        runtime.library.hspec_rt_runtime_create(
            engine, ctypes.byref(options), ctypes.byref(handle), ctypes.byref(error)
        )
        == 0
    )
    runtime.free("runtime", handle)
