# SPDX-License-Identifier: Apache-2.0
"""What the README shows works: its Python runs, its commands and options exist, the files that it names are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from hspec_trt.cli.app import COMMANDS, _cli
from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from tests.support.tiny_models import t_rand, write_target

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    target = write_target(tmp_path / "target", *t_rand())
    build(target, None, tmp_path / "engine", BuildConfig(max_batch_size=2, max_num_tokens=64))
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_commands_and_their_options() -> None:
    lines = [line for block in blocks("console") for line in block.splitlines() if line.startswith("$ hspec-trt ")]
    assert len(lines) > 5
    assert isinstance(_cli, click.Group)
    for line in lines:
        words = shlex.split(line.removeprefix("$ hspec-trt "), comments=True)
        assert words[0] in COMMANDS, line
        command = _cli.get_command(click.Context(_cli), words[0])
        assert command is not None
        known = {option for param in command.params for option in param.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_every_command_is_shown() -> None:
    for command in COMMANDS:
        assert f"hspec-trt {command}" in README


def test_make_targets_and_links() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", README)) <= targets
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", README):
        assert (ROOT / link).exists(), link
