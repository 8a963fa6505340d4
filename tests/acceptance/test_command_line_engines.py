# SPDX-License-Identifier: Apache-2.0
"""Engines and targets that are damaged, moved, or may not be read or written.

Whatever happens, there is a message and no traceback, the exit code says so, and nothing half-written stays.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hspec_trt.bundle import open_engine
from tests.support.command_line import AS_READER, LIMITS, Run, left_in

GOLDEN = Path(__file__).parents[1] / "golden" / "hspec_qwen3"
Damage = Callable[[Path], object]
DAMAGES: dict[str, Damage] = {
    "no tokenizer": lambda e: (e / "tokenizer.json").unlink(),
    "short graph": lambda e: os.truncate(e / "graph.onnx", 1000),
    "empty manifest": lambda e: (e / "config.json").write_bytes(b""),
    "manifest of the target": lambda e: shutil.copy(e.parent / "t" / "config.json", e),
    "graph of another engine": lambda e: shutil.copy(GOLDEN / "target" / "model.safetensors", e / "graph.onnx"),
    "flipped byte in the weights": lambda e: _flip(e / "weights.safetensors", 20_000),
    "flipped byte in the graph": lambda e: _flip(e / "graph.onnx", 500),
    "weights are a folder": lambda e: ((e / "weights.safetensors").unlink(), (e / "weights.safetensors").mkdir()),
    "weights are a link to something else": lambda e: (
        (e / "weights.safetensors").unlink(),
        (e / "weights.safetensors").symlink_to("/etc/passwd"),
    ),
}


def _flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_engines(name: str, run: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "e")
    shutil.copytree(made / "t", tmp_path / "t")
    DAMAGES[name](tmp_path / "e")
    for command in (("run", "e", "--prompt", "a"), ("inspect", "e"), ("verify", "e")):
        ended = run(*command)
        assert (ended.code, ended.out) == (2, "")
        assert "error[L0" in ended.err


@pytest.mark.parametrize("path", ["e/weights.safetensors", "e/config.json", "e"])
def test_engines_that_may_not_be_read(path: str, spawn: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "e")
    (tmp_path / path).chmod(0)
    ended = spawn("run", "e", "--prompt", "a", before=AS_READER)
    (tmp_path / path).chmod(0o755)
    assert (ended.code, ended.out) == (2, "")
    assert "error[L008]" in ended.err or "not readable" in ended.err


def test_an_engine_may_be_moved_and_linked(run: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "old")
    (tmp_path / "link").symlink_to("old")
    assert run("run", "link", "--prompt", "a", "--max-tokens", "1").code == 0
    (tmp_path / "old").rename(tmp_path / "new")
    assert run("run", "new", "--prompt", "a", "--max-tokens", "1").code == 0
    assert "error[L007]" in run("run", "link", "--prompt", "a").err


@pytest.mark.parametrize("path", ["t/config.json", "t/model.safetensors", "t/tokenizer.json", "t", "."])
def test_what_may_not_be_read_or_written(path: str, spawn: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "t", tmp_path / "t")
    (tmp_path / path).chmod(0 if path != "." else 0o555)
    ended = spawn("build", "--target", "t", "--output", "e", *LIMITS, before=AS_READER)
    (tmp_path / path).chmod(0o755)
    assert ended.code == 2
    assert "ermission denied" in ended.err or "not readable" in ended.err
    assert left_in(tmp_path) == ["t"]


def test_replacing_an_engine_that_may_not_be_moved(spawn: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "e")
    (tmp_path / "e").chmod(0o555)  # renaming a folder writes its own ".."
    ended = spawn("build", "--target", str(made / "t"), "--output", "e", "--force", *LIMITS, before=AS_READER)
    assert (ended.code, "error[B005]" in ended.err) == (2, True)
    assert left_in(tmp_path) == ["e"]
    open_engine(tmp_path / "e", whole=True)
