# SPDX-License-Identifier: Apache-2.0
"""Commands that are interrupted or killed, and builds that meet at one output.

Whatever happens, there is a message and no traceback, the exit code says so, and nothing half-written stays.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hspec_trt.bundle import open_engine
from tests.support.command_line import ENVIRONMENT, LIMITS, left_in


def start_build(made: Path, folder: Path, *extra: str, pause: bool = False) -> subprocess.Popen[str]:
    """A build, which with `pause` says "writing" and waits before it writes weights."""
    script = (
        "import sys, hspec_trt.pipeline as p\n"
        "write = p.write_weights\n"
        "def waiting(*a, **k):\n"
        "    print('writing', flush=True); sys.stdin.readline(); write(*a, **k)\n"
        f"p.write_weights = waiting if {pause} else write\n"
        "from hspec_trt.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    arguments = ["build", "--target", str(made / "t"), "--output", "e", *LIMITS, *extra]
    child = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if pause:
        assert child.stdout is not None
        assert child.stdout.readline() == "writing\n"
    return child


def test_two_builds_to_one_output(made: Path, tmp_path: Path) -> None:
    slow, fast = start_build(made, tmp_path, pause=True), start_build(made, tmp_path)
    _, err = fast.communicate(timeout=60)
    assert fast.returncode == 0, err
    _, err = slow.communicate("go\n", timeout=60)
    assert slow.returncode == 2
    assert "error[B001]" in err
    assert left_in(tmp_path) == ["e"]
    open_engine(tmp_path / "e", whole=True)


def test_two_replacements_of_one_engine(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "e")
    children = [start_build(made, tmp_path, "--force", pause=True) for _ in range(3)]
    assert all(child.poll() is None for child in children)
    for child in children:
        _, err = child.communicate("go\n", timeout=60)
        assert child.returncode == 0, err
    assert left_in(tmp_path) == ["e"]
    open_engine(tmp_path / "e", whole=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_polite_signals_leave_nothing(number: signal.Signals, made: Path, tmp_path: Path) -> None:
    child = start_build(made, tmp_path, pause=True)
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert err.rstrip().endswith("interrupted")
    assert "Traceback" not in err
    assert left_in(tmp_path) == []


def test_what_a_killed_build_left_goes_with_the_next(made: Path, tmp_path: Path) -> None:
    """Case G1: killed midway there is no engine, and no rubbish once the next build has come."""
    killed, alive = (start_build(made, tmp_path, pause=True) for _ in range(2))
    killed.kill()
    killed.communicate(timeout=60)
    assert len(left_in(tmp_path)) == 2
    assert "e" not in left_in(tmp_path)
    third = start_build(made, tmp_path)
    _, err = third.communicate(timeout=60)
    assert third.returncode == 0, err
    assert len(left_in(tmp_path)) == 2, "what a living build writes must stay"
    alive.send_signal(signal.SIGTERM)
    alive.communicate(timeout=60)
    assert left_in(tmp_path) == ["e"]


def test_an_interrupted_answer(made: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hspec_trt.cli", "run", str(made / "e"), "--prompt-ids", "1", "--ignore-eos"]
    script = (
        "import sys, time\n"
        "from hspec_trt.cli import main, run\n"
        "import hspec_trt.runtime.ort_session as o\n"
        "step = o.OrtSession.step\n"
        "def slow(*a):\n"
        "    print('step', flush=True); time.sleep(0.05); return step(*a)\n"
        "o.OrtSession.step = slow\n"
        "main(sys.argv[1:])\n"
    )
    command[1:3] = ["-c", script]
    child = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "step\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode in (130, -signal.SIGINT)
    assert err.rstrip().endswith("interrupted")
    assert "Traceback" not in err
