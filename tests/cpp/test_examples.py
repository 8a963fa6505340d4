# SPDX-License-Identifier: Apache-2.0
"""The C++ examples, built outside the repository against an installed runtime, and run on recorded steps."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from safetensors import safe_open

from tests.support.runtime_build import ROOT, runtime_build

TRACES = ROOT / "tests" / "golden" / "traces"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built examples."""
    root = tmp_path_factory.mktemp("outside")
    build = runtime_build()
    subprocess.run(["cmake", "--install", build, "--prefix", root / "prefix"], check=True, capture_output=True)
    shutil.copytree(ROOT / "examples" / "cpp", root / "project")
    configure = ["cmake", "-S", root / "project", "-B", root / "build", f"-DCMAKE_PREFIX_PATH={root / 'prefix'}"]
    for command in (configure, ["cmake", "--build", root / "build"]):
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
    return root / "build"


def answers_of(trace: str) -> list[dict]:
    with safe_open(TRACES / f"{trace}.safetensors", "np") as file:
        return json.loads(file.metadata()["trace"])["answers"]


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True, timeout=60)


def test_generate_prints_the_answer(programs: Path) -> None:
    trace = TRACES / "example_generate.safetensors"
    options = ("--prompt-ids", "11,12,13,14", "--max-tokens", 24, "--drafts", "on")
    result = run(programs / "generate", "--replay", trace, *options)
    answer = answers_of("example_generate")[0]
    assert result.returncode == 0, result.stderr
    ids, figures = result.stdout.splitlines()
    assert list(map(int, ids.split())) == answer["token_ids"]
    tau = answer["emitted"] / answer["steps"]
    assert figures == f"24 tokens, length, {answer['steps']} steps, accepted length {tau:.2f}"


def test_generate_says_what_is_wrong(programs: Path) -> None:
    trace = TRACES / "example_generate.safetensors"
    other = run(programs / "generate", "--replay", trace, "--prompt-ids", "11,12", "--max-tokens", 24)
    assert other.returncode == 2 and "error[R320]: input_ids has 2 elements, recorded 4" in other.stderr
    empty = run(programs / "generate", "--replay", trace)
    assert empty.returncode == 2 and empty.stderr.startswith("error[R102]: the prompt has no tokens")
    nowhere = run(programs / "generate", programs / "nothing", "--prompt-ids", "1")
    assert nowhere.returncode == 2 and nowhere.stderr.startswith("error[L007]")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--prompt-ids", "11,x"), "--prompt-ids is 'x', needs a number"),
        (("--prompt-ids", "11,12", "--max-tokens", "9e99"), "--max-tokens is '9e99', needs a number"),
        (("--prompt-ids", "11", "--seed", str(2**63)), f"--seed is '{2**63}', needs a number"),
        (("--drafts", "maybe"), "--drafts is 'maybe', needs on, off or auto"),
        (("--prompt-ids",), "--prompt-ids needs a value"),
        (("--colour", "red"), "unknown option --colour"),
    ],
)
def test_generate_refuses_its_options(options: tuple[str, ...], told: str, programs: Path) -> None:
    result = run(programs / "generate", "--replay", TRACES / "example_generate.safetensors", *options)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", told + "\n")


def test_an_engine_must_be_named(programs: Path) -> None:
    for name in ("generate", "stream"):
        result = run(programs / name)
        assert result.returncode == 2
        assert result.stderr == "the first argument is an engine folder, or --replay TRACE\n"


def test_stream_serves_three_clients(programs: Path) -> None:
    result = run(programs / "stream", "--replay", TRACES / "example_stream.safetensors")
    assert result.returncode == 0, result.stderr
    answers = answers_of("example_stream")
    lines = [" ".join([*map(str, answer["token_ids"]), f"({answer['finish']})"]) for answer in answers]
    assert result.stdout.splitlines() == lines
    assert [answer["finish"] for answer in answers] == ["length", "cancelled", "length"]
