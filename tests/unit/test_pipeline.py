# SPDX-License-Identifier: Apache-2.0
"""The build from end to end: what it writes, what it refuses, and that nothing half-written stays."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors import safe_open

from hspec_trt.bundle import open_engine
from hspec_trt.checkpoint.target import load_target
from hspec_trt.config.build import BuildConfig
from hspec_trt.contract import OPS
from hspec_trt.errors import BuildError, HspecError
from hspec_trt.pipeline import build, check_disk, settle_limits
from tests.support.tiny_models import t_rand, write_target

GOLDEN = Path(__file__).parents[1] / "golden"
CONFIG = BuildConfig(max_batch_size=4, max_num_tokens=64, page_size=16)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("build") / "engine"
    build(GOLDEN / "hspec_qwen3" / "target", GOLDEN / "hspec_qwen3" / "drafter", output, CONFIG)
    return output


def test_the_folder_is_whole(engine: Path) -> None:
    opened = open_engine(engine, whole=True)
    assert opened.manifest.limits.num_drafts == 7
    assert opened.manifest.ops == tuple(sorted(set(OPS) - {"AppendKv"}))  # H-Spec has no cache of its own
    assert opened.manifest.drafter is not None
    assert opened.manifest.target == load_target(GOLDEN / "hspec_qwen3" / "target").config
    assert {path.name for path in engine.iterdir()} == {*opened.manifest.files, "config.json"}


def test_graph_weights_are_the_checkpoint(engine: Path) -> None:
    model = onnx.load(str(engine / "graph.onnx"), load_external_data=True)
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    with safe_open(GOLDEN / "hspec_qwen3" / "target" / "model.safetensors", "numpy") as checkpoint:
        for name in checkpoint.keys():  # noqa: SIM118 - not a mapping
            np.testing.assert_array_equal(stored[f"target.{name}"], checkpoint.get_tensor(name))


def test_a_build_is_reproducible(engine: Path, tmp_path: Path) -> None:
    build(GOLDEN / "hspec_qwen3" / "target", GOLDEN / "hspec_qwen3" / "drafter", tmp_path / "again", CONFIG)
    for path in engine.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_a_target_without_tokenizer_and_without_drafter_builds(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target", *t_rand())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (target / name).unlink(missing_ok=True)
    report = build(target, None, tmp_path / "engine", CONFIG)
    assert report.manifest.drafter is None
    assert "tokenizer.json" not in report.manifest.files


def test_faults_of_both_checkpoints_leave_no_folder(tmp_path: Path) -> None:
    with pytest.raises(HspecError):
        build(GOLDEN / "hspec_qwen3" / "target", GOLDEN / "hspec_llama" / "drafter", tmp_path / "e", CONFIG)
    with pytest.raises(HspecError):
        build(tmp_path / "none", None, tmp_path / "e", CONFIG)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"max_batch_size": 0}, ["B021"]),
        ({"max_seq_len": 513}, ["B022"]),
        ({"max_seq_len": 1}, ["B022"]),
        ({"page_size": 48}, ["B023"]),
        ({"num_drafts": 8}, ["B024"]),
        ({"num_drafts": 0}, ["B024"]),
        ({"dtype": "bfloat16"}, ["B025"]),
        ({"max_num_tokens": 0}, ["B026"]),
        ({"max_batch_size": 9, "max_num_tokens": 64}, ["B020"]),
        ({"max_batch_size": 0, "page_size": 3, "dtype": "float16"}, ["B021", "B023", "B025"]),
    ],
)
def test_limits_are_refused_together_before_anything_is_written(
    changes: dict[str, int | str], codes: list[str], tmp_path: Path
) -> None:
    folder = GOLDEN / "hspec_qwen3"
    with pytest.raises(HspecError) as caught:
        build(folder / "target", folder / "drafter", tmp_path / "e", replace(CONFIG, **changes))
    assert [fault.code for fault in caught.value.faults] == codes
    assert list(tmp_path.iterdir()) == []


def test_too_many_rows_for_the_token_budget_names_the_largest_batch() -> None:
    """Case E11."""
    target = load_target(GOLDEN / "hspec_qwen3" / "target").config
    with pytest.raises(BuildError, match=r"batch 9 x verify width 8 = 72 tokens > --max-num-tokens 64.*to 8"):
        settle_limits(BuildConfig(max_batch_size=9, max_num_tokens=64, num_drafts=7), target, None)


def test_a_disk_that_is_too_small_is_refused_before_the_build(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(BuildError, match="B011"):
        check_disk(tmp_path / "e", free * 2)
    check_disk(tmp_path / "e", 1)


def cli_build(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hspec_trt.cli", "build", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_command_line_builds_and_refuses_what_exists(tmp_path: Path) -> None:
    folder, output = GOLDEN / "hspec_qwen3", tmp_path / "e"
    arguments = ["--target", str(folder / "target"), "--drafter", str(folder / "drafter"), "--output", str(output)]
    done = cli_build(*arguments, "--json", "--max-batch-size", "4")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["backend"] == "onnxruntime"
    again = cli_build(*arguments)
    assert again.returncode == 2
    assert "error[B001]" in again.stderr
    assert "Traceback" not in again.stderr
    assert cli_build(*arguments, "--force").returncode == 0


def test_an_interrupt_leaves_the_old_engine_and_nothing_else(tmp_path: Path, engine: Path) -> None:
    shutil.copytree(engine, tmp_path / "e")
    script = (
        "import sys, time, hspec_trt.pipeline as p\n"
        "def slow(*a, **k):\n"
        "    print('writing', flush=True); time.sleep(60)\n"
        "p.write_weights = slow\n"
        "from hspec_trt.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    folder = GOLDEN / "hspec_qwen3"
    arguments = ["build", "--target", str(folder / "target"), "--output", str(tmp_path / "e"), "--force"]
    child = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "writing\n"
    assert len(list(tmp_path.iterdir())) == 2
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)
    assert child.returncode == 130
    assert [path.name for path in tmp_path.iterdir()] == ["e"]
    open_engine(tmp_path / "e", whole=True)
