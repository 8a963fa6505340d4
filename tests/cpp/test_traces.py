# SPDX-License-Identifier: Apache-2.0
"""The C++ runtime asks for exactly the recorded steps of the Python one and gives exactly its answers."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from hspec_trt.runtime.stats import NoDrafts
from tests.support.runtime_build import runtime_build
from tests.support.trace_recorder import Recorder
from tests.support.trace_scripts import CASES, ENGINES

TRACES = Path(__file__).parents[1] / "golden" / "traces"


def replay(*traces: Path) -> subprocess.CompletedProcess[str]:
    program = runtime_build("release", "replay_traces") / "replay_traces"
    return subprocess.run([program, *traces], capture_output=True, text=True, check=False)


def meta_of(path: Path) -> dict:
    with safe_open(path, "np") as file:
        return json.loads(file.metadata()["trace"])


def test_every_trace_is_replayed_the_same() -> None:
    paths = sorted(TRACES.glob("*.safetensors"))
    assert {path.stem for path in paths} == set(CASES)
    result = replay(*paths)
    assert result.returncode == 0, result.stdout
    assert result.stdout.splitlines() == [f"same {path}" for path in paths]


def test_the_traces_hold_what_they_are_for() -> None:
    answers = [answer for path in TRACES.glob("*.safetensors") for answer in meta_of(path)["answers"]]
    lengths = {int(length) for answer in answers for length in answer["lengths"]}
    assert lengths >= set(range(1, 9))  # every accepted length for G = 7
    assert {answer["finish"] for answer in answers} == {
        "eos", "stop_token", "stop_string", "length", "cancelled", "error"
    }  # fmt: skip
    reasons = {reason for answer in answers for reason in answer["without"]}
    assert reasons == {"off", "policy", "length", "position", "no_match", "budget", "pages"}
    assert reasons == {reason.label for reason in NoDrafts}
    assert sum(answer["cached_tokens"] > 0 for answer in answers) > 10
    assert {answer["error"][:11] for answer in answers if answer["error"]} == {
        "error[R301]", "error[R302]", "error[R222]"
    }  # fmt: skip


def test_rows_are_preempted_with_every_kind_of_drafter() -> None:
    preemptions: Counter[str] = Counter()
    for name, case in CASES.items():
        answers = meta_of(TRACES / f"{name}.safetensors")["answers"]
        preemptions[case.engine] += sum(answer["preemptions"] for answer in answers)
    drafters = set(ENGINES) - {"feeding", "feeding_eagle3"}  # the drafters of two others
    assert set(preemptions) == set(ENGINES) and min(preemptions[name] for name in drafters) >= 2, preemptions
    assert preemptions.total() > 10


def test_steps_go_ahead_of_those_that_are_read() -> None:
    ahead = {name: meta_of(TRACES / f"{name}.safetensors") for name in CASES if name.startswith("ahead")}
    assert all(len(meta["followed_steps"]) > 10 for meta in ahead.values())
    ends = Counter(answer["finish"] for meta in ahead.values() for answer in meta["answers"])
    assert min(ends[reason] for reason in ("eos", "length", "cancelled", "error")) >= 2


@pytest.mark.parametrize("name", ["traffic_hspec_3", "auto_dear_drafts", "ahead_few_pages"])
def test_recording_again_gives_the_same_trace(name: str, tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    Recorder(tmp_path).record(name).write(again)
    assert meta_of(again) == meta_of(TRACES / f"{name}.safetensors")
    new, old = load_file(again), load_file(TRACES / f"{name}.safetensors")
    assert set(new) == set(old)
    for tensor in set(new) - {"out.emitted_logprobs", "answers.logprobs"}:  # these depend on the machine's last bit
        assert np.array_equal(new[tensor], old[tensor]), tensor


@pytest.mark.parametrize(
    ("tensor", "name"),
    [
        ("in.page_table", "traffic_full_4"),
        ("in.input_ids", "traffic_full_4"),
        ("in.draft_rows", "traffic_full_4"),
        ("in.seed", "traffic_full_4"),
        ("in.edit_biases", "edited"),
        ("in.most_context", "ahead_hspec"),
    ],
)
def test_one_wrong_value_is_found(tensor: str, name: str, tmp_path: Path) -> None:
    path = TRACES / f"{name}.safetensors"
    tensors = load_file(path)
    values = tensors[tensor]
    wrong = np.flatnonzero(values + 1 != values)  # a bias may be infinite
    if tensor == "in.most_context":  # it is looked at in steps that follow
        rows = np.cumsum(tensors["sizes"][:, 0])
        wrong = [rows[meta_of(path)["followed_steps"][-1]] - 1]
    values[wrong[-1]] += 1
    changed = tmp_path / "changed.safetensors"
    save_file(tensors, changed, metadata={"trace": json.dumps(meta_of(path))})
    result = replay(changed)
    assert result.returncode == 1
    assert tensor.removeprefix("in.") in result.stdout


def test_a_damaged_trace_is_refused(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.safetensors"
    for data in (b"", b"\xff" * 16, (TRACES / "guided.safetensors").read_bytes()[:-100]):
        damaged.write_bytes(data)
        result = replay(damaged)
        assert result.returncode == 2
        assert "error[R321]: the trace cannot be read" in result.stdout
