# SPDX-License-Identifier: Apache-2.0
import ctypes
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hspec_trt.cli import main
from hspec_trt.cli.app import COMMANDS
from hspec_trt.cli.doctor import cuda_driver_version


def exit_code(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["fly"]) == 2
    assert "No such command 'fly'" in capsys.readouterr().err


def test_our_errors_become_a_message_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["inspect", str(tmp_path / "none")]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error[L007]: ")
    assert "Traceback" not in shown.err + shown.out


def test_errors_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["inspect", "--json", str(tmp_path)]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == "L007"


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hspec_trt.cli", "--debug", "inspect", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert "Traceback" in done.stderr


def test_doctor_tells_what_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["backends"]["onnxruntime"]["builds"] == "yes"
    assert set(told["packages"]) == {"onnxruntime", "tensorrt-rtx", "tensorrt", "torch", "fastapi", "llguidance"}
    assert exit_code(["doctor"]) == 0


def test_a_library_that_only_has_the_drivers_name_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = ctypes.CDLL("libm.so.6")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: stranger)
    assert cuda_driver_version() is None


def test_a_polite_kill_is_an_interrupt() -> None:
    script = (
        "import time, hspec_trt.cli.app as m\n"
        "m._LazyGroup.get_command = lambda *a: (print('go', flush=True), time.sleep(60))[1]\n"
        "m.main(['doctor'])\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "go\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130
    assert err.strip() == "interrupted"
