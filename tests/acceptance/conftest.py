# SPDX-License-Identifier: Apache-2.0
"""The command line, in this process and in one of its own, and a small engine for it."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hspec_trt.cli import main
from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from tests.support.command_line import ENVIRONMENT, Ended, Run
from tests.support.tiny_models import t_rand, write_target


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run(arguments)` in this process, standing in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        told = capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        assert isinstance(caught.value.code, int)
        return Ended(caught.value.code, told.out, told.err)

    return call


@pytest.fixture
def spawn(tmp_path: Path) -> Run:
    """`spawn(arguments)` in a process of its own; `before` goes before the interpreter, the rest to `subprocess`."""

    def call(
        *arguments: str, before: tuple[str, ...] = (), env: Mapping[str, str] | None = None, **streams: object
    ) -> Ended:
        command = [*before, sys.executable, "-m", "hspec_trt.cli", *arguments]
        piped = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        done = subprocess.run(  # type: ignore[call-overload]
            command, cwd=tmp_path, env=ENVIRONMENT | (env or {}), timeout=120, check=False, **piped
        )
        out, err = (text.decode(errors="replace") if text else "" for text in (done.stdout, done.stderr))
        assert "Traceback" not in out + err, err
        return Ended(done.returncode, out, err)

    return call


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target `t` and an engine `e` of it."""
    folder = tmp_path_factory.mktemp("made")
    write_target(folder / "t", *t_rand(vocab_size=300))
    build(folder / "t", None, folder / "e", BuildConfig(max_batch_size=4, page_size=16, max_num_tokens=64))
    return folder
