# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hspec_trt.cli.run import parse_ids
from hspec_trt.config.build import BuildConfig
from hspec_trt.errors import RequestError
from hspec_trt.pipeline import build
from tests.support.tiny_models import t_rand, write_target

GOLDEN = Path(__file__).parents[2] / "golden" / "hspec_qwen3"
CONFIG = BuildConfig(max_batch_size=4, max_num_tokens=64, page_size=16)
TRACE = json.loads((GOLDEN / "trace.json").read_text())[0]


@pytest.fixture(scope="module")
def golden_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("run") / "engine"
    build(GOLDEN / "target", GOLDEN / "drafter", output, CONFIG)
    return output


@pytest.fixture(scope="module")
def text_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    build(write_target(folder / "target", *t_rand()), None, folder / "engine", CONFIG)
    return folder / "engine"


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hspec_trt.cli", "run", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, input=stdin)


def golden_prompt() -> str:
    from safetensors import safe_open

    with safe_open(GOLDEN / "vectors.safetensors", "numpy") as vectors:
        return ",".join(str(int(one)) for one in vectors.get_tensor("p0.prompt_ids"))


def test_token_ids_in_and_the_golden_text_out_with_drafts(golden_engine: Path) -> None:
    arguments = ["--prompt-ids", golden_prompt(), "--max-tokens", "40", "--temperature", "0", "--json"]
    done = run(str(golden_engine), *arguments, "--drafts", "on", "--ignore-eos")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["token_ids"] == TRACE["plain_greedy"]
    assert told["accepted_length"] > 1.5
    assert told["finish_reason"] == "length"


def test_the_stream_and_the_figures(golden_engine: Path) -> None:
    done = run(str(golden_engine), "--prompt-ids", golden_prompt(), "--max-tokens", "8", "--temperature", "0")
    assert [int(one) for one in done.stdout.split()] == TRACE["plain_greedy"][:8]
    for words in ("tokens/s", "mean accepted length", "memory: weights"):
        assert words in done.stderr


def test_text_from_the_option_and_from_standard_input_is_the_same(text_engine: Path) -> None:
    options = ["--raw", "--max-tokens", "6", "--temperature", "0.8", "--seed", "3"]
    by_option = run(str(text_engine), "--prompt", "abc", *options)
    by_input = run(str(text_engine), *options, stdin="abc")
    assert by_option.returncode == 0, by_option.stderr
    assert by_option.stdout == by_input.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--prompt-ids", ""], "R102"),
        (["--prompt-ids", "1,256"], "R103"),
        (["--prompt-ids", "-1"], "R103"),
        (["--prompt-ids", "1.5"], "R104"),
        (["--prompt", "text for an engine without tokenizer"], "R105"),
        (["--prompt-ids", "1", "--max-tokens", "600"], "R101"),
        (["--prompt-ids", "1", "--temperature", "-1"], "R2"),
        (["--prompt-ids", "1", "--top-p", "nan"], "R2"),
        (["--prompt-ids", "1", "--seed", "-4"], "R2"),
        (["--prompt-ids", "1", "--stop", "x"], "R206"),
    ],
)
def test_a_bad_request_ends_with_its_code(golden_engine: Path, arguments: list[str], code: str) -> None:
    done = run(str(golden_engine), *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error[{code}"), done.stderr
    assert "Traceback" not in done.stderr


def test_no_engine(tmp_path: Path) -> None:
    done = run(str(tmp_path), "--prompt", "x")
    assert (done.returncode, done.stderr[:11]) == (2, "error[L007]")


def test_ids_are_parsed_or_named() -> None:
    assert parse_ids(" 1, 2 3,") == [1, 2, 3]
    with pytest.raises(RequestError, match="'x'"):
        parse_ids("1 x")
