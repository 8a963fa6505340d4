# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt bench`` on tiny engines: equal texts, an interrupt in the middle, table, figures and pictures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hspec_trt.cli import main
from hspec_trt.progress import SILENT
from hspec_trt.suite.figures import figures
from hspec_trt.suite.plots import NAMES
from hspec_trt.suite.records import Record
from hspec_trt.suite.run import LOOKUP, OFF, SuiteOptions, run_suite
from tests.support.engines import make_engine
from tests.support.golden_pair import hspec_pair
from tests.support.graph_engine import Pair
from tests.support.tokenizers_toy import byte_level

TEMPLATE = b"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
OPTIONS = SuiteOptions(per_task=2, max_tokens=12, time_steps=2, threads=1)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("engines")
    files = {"tokenizer.json": byte_level().to_str().encode(), "chat_template.jinja": TEMPLATE}
    pair = hspec_pair("hspec_qwen3")
    alone = Pair(pair.target, pair.target_tensors)
    return [
        make_engine(folder / "drafts", pair, text_files=files),
        make_engine(folder / "alone", alone, text_files=files),
        make_engine(folder / "other", hspec_pair("hspec_llama").without_drafter(), text_files=files),
    ]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite"
    folder.mkdir()
    for task, words in (("qa", ["why", "how so", "w" * 300]), ("tools", ["do", "go"])):
        rows = [
            {"id": f"{task}-{n}", "task": task, "messages": [{"role": "user", "content": text}]}
            | ({"tools": [{"name": "f"}]} if task == "tools" else {})
            for n, text in enumerate(words)
        ]
        (folder / f"{task}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def bench(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["bench", *map(str, arguments)])
    return int(ended.value.code or 0)


def test_compares_and_draws(
    engines: list[Path], suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--max-tokens", 12, "--per-task", 2, "--time-steps", 2, "--threads", 1]
    assert bench(engines[0], "--suite", suite, "--output", tmp_path / "out", *options) == 0
    table = (tmp_path / "out" / "table.md").read_text()
    assert table in capsys.readouterr().out
    for row in ("| prompt lookup |", "| drafts |", "| drafting off |"):
        assert row in table
    told = {row["name"]: row for row in json.loads((tmp_path / "out" / "figures.json").read_text())["drafters"]}
    assert set(told) == {OFF, LOOKUP, "drafts"}
    assert told[OFF]["lengths"]["all"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert set(told["drafts"]["lengths"]) == {"qa", "tools", "all"}
    assert told["drafts"]["lengths"]["all"]["value"] >= 1.0
    assert len(told["drafts"]["positions"]) == 7
    assert told["drafts"]["kv"]["drafter_per_token"] == 0
    assert told["drafts"]["parameters"] > 0 == told[LOOKUP]["parameters"]
    cost = told["drafts"]["cost"]
    assert cost["target"]["value"] > 0 and cost["rest"]["value"] > 0
    assert cost["speedup"]["low"] <= cost["speedup"]["value"] <= cost["speedup"]["high"]
    assert told[LOOKUP]["cost"]["drafting"]["value"] == told[OFF]["cost"]["drafting"]["value"] == 0
    for name in NAMES:
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")


def rows_of(records: list[Record]) -> list[tuple[object, ...]]:
    return sorted((row.drafter, row.key, row.new_tokens, row.steps, row.offered, row.accepted) for row in records)


class _Impatient:
    """Interrupts after so many answers."""

    def __init__(self, answers: int) -> None:
        self.left = answers

    def stage(self, name: str, total: int | None = None) -> None:
        return

    def note(self, text: str) -> None:
        return

    def advance(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise KeyboardInterrupt


def test_an_interrupted_comparison_goes_on_and_ends_alike(engines: list[Path], suite: Path, tmp_path: Path) -> None:
    """Whatever runs at once: drafts and texts of an answer do not depend on its neighbours."""
    whole = run_suite(engines[:1], suite, tmp_path / "whole", OPTIONS, SILENT)
    several = SuiteOptions(per_task=2, max_tokens=12, time_steps=2, threads=1, concurrency=3)
    with pytest.raises(KeyboardInterrupt):
        run_suite(engines[:1], suite, tmp_path / "parts", several, _Impatient(5))
    kept = len((tmp_path / "parts" / "records.jsonl").read_text().splitlines())
    assert 5 <= kept < 12
    parts = run_suite(engines[:1], suite, tmp_path / "parts", several, SILENT)
    assert rows_of(parts.folder.records()) == rows_of(whole.folder.records())
    texts = {(row.key, row.new_tokens) for row in whole.folder.records()}
    assert len(texts) == 4
    assert [row.prompts for row in figures(parts)] == [4, 4, 4]


def test_prompts_that_do_not_fit_are_counted(engines: list[Path], suite: Path, tmp_path: Path) -> None:
    options = SuiteOptions(max_tokens=4, max_prompt_tokens=100, time_steps=0, threads=1)
    result = run_suite(engines[:1], suite, tmp_path / "out", options, SILENT)
    assert result.skipped == {"qa": 1}
    assert not result.folder.timings()


def test_an_engine_without_a_drafter_runs_what_it_can(engines: list[Path], suite: Path, tmp_path: Path) -> None:
    result = run_suite(engines[1:2], suite, tmp_path / "out", OPTIONS, SILENT)
    assert {row.name for row in figures(result)} == {OFF, LOOKUP}


@pytest.mark.parametrize(
    ("more", "code"), [(["--per-task", "1"], "R501"), ([], ""), (["--max-prompt-tokens", "1"], "R500")]
)
def test_faults_are_messages(
    engines: list[Path],
    suite: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    code: str,
) -> None:
    common = [engines[0], "--suite", suite, "--output", tmp_path / "out", "--max-tokens", 2, "--time-steps", 0]
    assert bench(*common) == 0
    capsys.readouterr()
    assert bench(*common, *more) == (2 if code else 0)
    if code:
        assert f"error[{code}]" in capsys.readouterr().err


def test_engines_that_cannot_be_compared_are_refused_before_the_first_one_runs(
    engines: list[Path], suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for prompts in (tmp_path / "none", tmp_path / "suite" / "qa.jsonl", tmp_path):
        assert bench(engines[0], "--suite", prompts, "--output", tmp_path / "out") == 2
        assert "error[R500]: no prompts" in capsys.readouterr().err
    for second, code in ((engines[2], "R502"), (tmp_path / "none", "L007"), (suite, "L007")):
        assert bench(engines[0], second, "--suite", suite, "--output", tmp_path / "out") == 2
        assert f"error[{code}]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("error")  # a picture of no drafter says nothing on the error stream
def test_results_go_on_with_more_engines_but_not_with_another_of_the_same_name(
    engines: list[Path], suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--suite", suite, "--output", tmp_path / "out", "--max-tokens", 2, "--time-steps", 0, "--threads", 1]
    assert bench(engines[1], *common) == 0
    records = (tmp_path / "out" / "records.jsonl").read_bytes()
    assert bench(engines[1], engines[0], *common) == 0
    assert (tmp_path / "out" / "records.jsonl").read_bytes().startswith(records)
    (tmp_path / "new").mkdir()
    shutil.copytree(engines[1], tmp_path / "new" / engines[0].name)
    capsys.readouterr()
    assert bench(tmp_path / "new" / engines[0].name, *common) == 2
    assert "error[R501]: results of another engine named 'drafts'" in capsys.readouterr().err


def test_two_engines_of_one_name_are_refused(
    engines: list[Path], suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(engines[0], engines[0], "--suite", suite, "--output", tmp_path / "out") == 2
    assert "error[R502]" in capsys.readouterr().err
