# SPDX-License-Identifier: Apache-2.0
"""Commands whose streams are closed, full or left by their reader, and odd terminals.

Whatever happens, there is a message and no traceback, the exit code says so, and nothing half-written stays.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import LIMITS, Run

COMMANDS = {
    "run": ("run", "{e}", "--prompt", "a", "--max-tokens", "3", "--temperature", "0"),
    "run json": ("run", "{e}", "--prompt", "a", "--max-tokens", "3", "--temperature", "0", "--json"),
    "inspect": ("inspect", "{e}"),
    "inspect json": ("inspect", "{e}", "--json"),
    "doctor": ("doctor",),
    "doctor json": ("doctor", "--json"),
    "verify": ("verify", "{e}", "--prompt-ids", "5", "--max-tokens", "2"),
    "verify json": ("verify", "{e}", "--prompt-ids", "5", "--max-tokens", "2", "--json"),
    "build json": ("build", "--target", "{t}", "--output", "new", "--json", *LIMITS),
    "help": ("--help",),
}


def arguments_of(name: str, made: Path) -> list[str]:
    return [part.format(e=made / "e", t=made / "t") for part in COMMANDS[name]]


@pytest.mark.parametrize("name", COMMANDS)
def test_output_that_cannot_be_written(name: str, spawn: Run, made: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = spawn(*arguments_of(name, made), stdout=full)
    assert ended.code in (1, 2)
    assert "No space left" in ended.err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("name", ["run", "inspect", "doctor json", "build json"])
def test_closed_streams(name: str, closed: str, spawn: Run, made: Path) -> None:
    ended = spawn(*arguments_of(name, made), before=("bash", "-c", f'"$@" {closed}', "bash"))
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_that_leaves(name: str, spawn: Run, made: Path) -> None:
    script = 'set -o pipefail; "$@" | true; exit "${PIPESTATUS[0]}"'
    ended = spawn(*arguments_of(name, made), before=("bash", "-c", script, "bash"))
    assert ended.code in (0, 1)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.endswith("json")])
def test_json_is_json_also_for_odd_terminals(name: str, spawn: Run, made: Path, tmp_path: Path) -> None:
    for number, env in enumerate(
        ({"COLUMNS": "1"}, {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, {"FORCE_COLOR": "1", "TERM": "dumb"})
    ):
        arguments = [part if part != "new" else f"new{number}" for part in arguments_of(name, made)]
        ended = spawn(*arguments, env=env)
        assert ended.code == 0, ended.err
        json.loads(ended.out)


@pytest.mark.parametrize("name", ["run", "inspect", "doctor"])
def test_odd_terminals(name: str, spawn: Run, made: Path) -> None:
    for env in ({"COLUMNS": "40", "NO_COLOR": "1"}, {"COLUMNS": "0"}, {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"}):
        ended = spawn(*arguments_of(name, made), env=env)
        assert ended.code == 0, ended.err
        assert "\x1b" not in ended.out
