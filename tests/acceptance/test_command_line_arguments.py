# SPDX-License-Identifier: Apache-2.0
"""What a newcomer asks the command line for: wrong paths, outputs in odd places, numbers and prompts that cannot be.

Whatever happens, there is a message and no traceback, the exit code says so, and nothing half-written stays.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hspec_trt.bundle import open_engine
from tests.support.command_line import LIMITS, Run, left_in


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/nonexistent", "C010"),
        ("", "C010"),
        (".", "C010"),
        ("/dev/null", "C010"),
        ("/etc/passwd", "C014"),
        ("empty", "C003"),
        ("\udcff\udcfe", "C010"),
        ("a" * 300, "C010"),
    ],
)
def test_what_is_no_target(target: str, code: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    ended = run("build", "--target", target, "--output", "e")
    assert ended.code == 2
    assert f"error[{code}]" in ended.err or (len(target) == 300 and "too long" in ended.err)
    assert left_in(tmp_path) == ["empty"]


@pytest.mark.parametrize(
    ("output", "force", "code"),
    [
        ("", False, "B001"),
        (".", False, "B001"),
        ("/", True, "B002"),
        ("file", False, "B001"),
        ("file", True, "B002"),
        ("file/e", False, "B003"),
        ("none/e", False, "B003"),
        ("a" * 300, False, "B005"),
        ("a" * 250, False, "B005"),
        ("link", True, "B002"),
        ("t", True, "B002"),
        ("/proc/e", False, "B0"),
        ("not UTF-8 \udcff", False, "B005"),
    ],
)
def test_outputs_that_are_refused(output: str, force: bool, code: str, run: Run, made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(made / "e")
    shutil.copytree(made / "t", tmp_path / "t")
    before = left_in(tmp_path), left_in(tmp_path / "t")
    ended = run("build", "--target", "t", "--output", output, *LIMITS, *(["--force"] if force else []))
    assert ended.code == 2
    assert f"error[{code}" in ended.err
    assert (left_in(tmp_path), left_in(tmp_path / "t")) == before
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("output", ["sp ace é 日本 😀", "t/inside", "../{name}/x/", "new\nline", "--", "{here}"])
def test_outputs_that_are_fine(output: str, run: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "t", tmp_path / "t")
    output = output.format(name=tmp_path.name, here=tmp_path / "e")
    assert run("build", "--target", "t", "--output", output, *LIMITS).code == 0
    assert json.loads(run("run", "--prompt", "é", "--max-tokens", "3", "--json", "--", output).out)["finish_reason"]
    assert not [name for name in left_in(tmp_path) if name.startswith(".")]


def test_force_into_the_folder_one_stands_in_or_under(spawn: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "e")
    (tmp_path / "e" / "sub").mkdir()
    target = ("build", "--target", str(made / "t"), *LIMITS, "--force")
    for place, output in (("e/sub", ".."), ("e", ".")):
        inside = ("env", "-C", place)
        assert spawn(*target, "--output", output, before=inside).code == 0
        assert left_in(tmp_path) == ["e"]
        open_engine(tmp_path / "e", whole=True)
        assert "sub" not in left_in(tmp_path / "e")
        (tmp_path / "e" / "sub").mkdir()


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--max-batch-size", "9" * 30, "B021"),
        ("--max-seq-len", "0", "B022"),
        ("--max-seq-len", "-3", "B022"),
        ("--max-num-tokens", "9" * 30, "B026"),
        ("--max-num-tokens", "7", "B020"),
        ("--page-size", "0", "B023"),
        ("--num-drafts", "-1", "B024"),
    ],
)
def test_numbers_that_cannot_be(option: str, value: str, code: str, run: Run, made: Path, tmp_path: Path) -> None:
    ended = run("build", "--target", str(made / "t"), "--output", "e", option, value)
    assert (ended.code, f"error[{code}]: " in ended.err) == (2, True), ended.err
    assert " to 0 or" not in ended.err, "a remedy that cannot be taken"
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--prompt-ids", "--5"],
        ["--prompt-ids", "1²"],
        ["--prompt-ids", "9" * 5000],
        ["--prompt-ids", "1", "--threads", "0"],
        ["--prompt-ids", "1", "--threads", "-1"],
        ["--prompt-ids", "1", "--threads", "100000"],
        ["--prompt-ids", "1", "--kv-cache-memory", "1"],
        ["--prompt-ids", "1", "--kv-cache-memory", "much"],
        ["--prompt-ids", "1", "--system", "you"],
        ["--prompt", "a", "--raw", "--system", "you"],
        ["--prompt", "\udcff"],
        ["--prompt", "", "--raw"],
        ["--raw"],
        ["--prompt-ids", "1", "--seed", str(2**63)],
        ["--prompt-ids", "1", "--num-drafts", "-1"],
        ["--prompt", "a", "--draft-source", "drafter"],
    ],
)
def test_requests_that_are_refused(arguments: list[str], run: Run, made: Path) -> None:
    ended = run("run", str(made / "e"), *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(("error[", "Usage: "))
    assert len(ended.err) < 600


@pytest.mark.parametrize(
    "arguments",
    [
        ["--prompt-ids", "x"],
        ["--prompt", "\udcff"],
        ["--prompt-ids", "1", "--threads", "0"],
        ["--prompt-ids", "1", "--threads", "100000"],
        ["--prompt-ids", ",".join(["1"] * 256)],
        ["--seed", "-1"],
        ["--seed", str(2**63)],
    ],
)
def test_checks_that_are_refused(arguments: list[str], run: Run, made: Path) -> None:
    ended = run("verify", str(made / "e"), *arguments, "--max-tokens", "2")
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert "error[R1" in ended.err or "error[L0" in ended.err or ended.err.startswith("Usage: ")
    assert "R106" not in ended.err, "of an option that nobody gave"


def test_a_prompt_that_leaves_room_for_one_token(run: Run, made: Path) -> None:
    ids = ",".join(["1"] * 255)
    for command in (("run",), ("verify",)):
        ended = run(*command, str(made / "e"), "--prompt-ids", ids, "--json")
        assert ended.code == 0, ended.err
        json.loads(ended.out)


def test_an_empty_prompt_is_one_where_the_template_says_something(run: Run, made: Path) -> None:
    told = json.loads(run("run", str(made / "e"), "--prompt", "", "--max-tokens", "2", "--json").out)
    assert told["prompt_tokens"] > 0


def test_same_seed_same_text_and_no_seed_another(run: Run, made: Path) -> None:
    options = ("run", str(made / "e"), "--prompt", "Ünïcödé 😀", "--max-tokens", "12", "--json", "--ignore-eos")
    ids = [json.loads(run(*options, *extra).out)["token_ids"] for extra in (("--seed", "3"), ("--seed", "3"), (), ())]
    assert ids[0] == ids[1]
    assert ids[2] != ids[3]
