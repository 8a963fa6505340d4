# SPDX-License-Identifier: Apache-2.0
"""The trace of the steps: a JSON array at every moment, with what the steps did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import LoadError
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.record import Recorder
from hspec_trt.runtime.trace import Span, Trace
from tests.unit.runtime.harness import drain, make_core, submit


def traced(path: Path, **options: object) -> EngineCore:
    core = make_core(accept=lambda seed, position: seed % 4, **options)
    core.recorder = Recorder(core.scheduler, Trace(path))
    return core


def read(path: Path) -> list[dict]:
    return json.loads(path.read_text())


def test_steps_add_up_to_the_answers(tmp_path: Path) -> None:
    core = traced(tmp_path / "t.json")
    params = [SamplingParams(temperature=1.0, seed=seed, max_tokens=9 + seed, drafts="on") for seed in range(5)]
    answers = [submit(core, [3, 5, 7] * (seed + 1), params[seed]) for seed in range(5)]
    drain(core)
    core.close()
    events = read(tmp_path / "t.json")
    steps = [event["args"] for event in events if event["name"] == "step"]
    assert [one["step"] for one in steps] == list(range(1, core.stats.steps + 1))
    assert sum(one["emitted"] for one in steps) == sum(len(answer.ids) for answer in answers)
    assert sum(one["drafts"] for one in steps) == core.stats.drafts.drafted
    assert sum(one["accepted"] for one in steps) == core.stats.drafts.num_accepted > 0
    assert sum(one["prompt_tokens"] for one in steps) == core.stats.prompt_tokens
    assert steps[0]["tokens"] == 3 + 6 + 9 + 12 + 15
    assert [event["args"] for event in events if event["name"] == "session"] == steps
    ends = {event["id"]: event["args"] for event in events if event["ph"] == "b"}
    assert [end["new_tokens"] for _, end in sorted(ends.items())] == [len(answer.ids) for answer in answers]
    assert {event["args"]["waiting"] for event in events if event["name"] == "answers"} == {0}


def test_spans_lie_within_their_step_and_follow_each_other(tmp_path: Path) -> None:
    core = traced(tmp_path / "t.json")
    submit(core, [3, 5], SamplingParams(temperature=0.0, max_tokens=20))
    drain(core)
    spans = [event for event in read(tmp_path / "t.json") if event["ph"] == "X"]
    last = 0.0
    for step, plan, session, commit in zip(*[iter(spans)] * 4, strict=True):
        assert [one["name"] for one in (step, plan, session, commit)] == ["step", "plan", "session", "commit"]
        assert last <= step["ts"] == plan["ts"]
        assert plan["ts"] + plan["dur"] == pytest.approx(session["ts"], abs=0.01)
        assert session["ts"] + session["dur"] == pytest.approx(commit["ts"], abs=0.01)
        last = step["ts"] + step["dur"]
        assert commit["ts"] + commit["dur"] == pytest.approx(last, abs=0.01)


def test_whole_after_every_step(tmp_path: Path) -> None:
    core = traced(tmp_path / "t.json")
    submit(core, [3, 5], SamplingParams(temperature=0.0, max_tokens=12, drafts="off"))
    sizes = [len(read(tmp_path / "t.json"))]
    while not core.is_idle:
        core.step()
        sizes.append(len(read(tmp_path / "t.json")))
    assert sizes[0] == 2
    assert all(after > before for before, after in pairwise(sizes))


def test_whole_after_the_process_was_killed(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from hspec_trt.runtime.trace import Span, Trace\n"
        "trace = Trace(Path(sys.argv[1]))\n"
        "for i in range(50): trace.step([Span('step', i, i + 1, {'step': i})], {})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "t.json")], check=False)
    assert done.returncode == -9
    assert [event["args"]["step"] for event in read(tmp_path / "t.json")[2:]] == list(range(50))


def test_full_disk_ends_the_trace_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = traced(tmp_path / "t.json")
    answer = submit(core, [3, 5], SamplingParams(temperature=0.0, max_tokens=12, drafts="off"))
    for _ in range(3):
        core.step()
    before = read(tmp_path / "t.json")
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[: min(len(data), 40)], at))
    drain(core)
    assert len(answer.ids) == 12
    assert read(tmp_path / "t.json") == before


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="L037"):
        Trace(tmp_path / "none" / "t.json")


def test_closed_trace_takes_no_more(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "t.json")
    trace.close()
    trace.step([Span("step", 0.0, 1.0)], {})
    trace.close()
    assert len(read(tmp_path / "t.json")) == 2
