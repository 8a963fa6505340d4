# SPDX-License-Identifier: Apache-2.0
"""A compilation ends in a whole plan or in an error that says why, whatever TensorRT does (case G1)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from build_scripts.engine_needs import need_from_text
from hspec_trt.engine import EngineReport, compile_engine, plan_engine
from hspec_trt.engine import estimate as estimates
from hspec_trt.errors import BuildError, HspecError, LoadError
from tests.support.plugin_build import plugin_library
from tests.unit.engine.conftest import LIMITS, Step

Fake = Callable[[str], None]


class Stages:
    """A `Progress` that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int | None]] = []
        self.advanced = 0

    def stage(self, name: str, total: int | None = None) -> None:
        self.told.append((name, total))

    def advance(self, amount: int) -> None:
        self.advanced += amount

    def note(self, text: str) -> None:
        self.told.append((text, None))


def compile_bodies(step: Step, folder: Path, stages: Stages | None = None, **changes: object) -> EngineReport:
    config = replace(step.config, **{"plugins": "none", **changes})
    progress = Stages() if stages is None else stages
    plan = plan_engine(step.graph, LIMITS, config, folder)
    return compile_engine(plan, step.weights, folder / "rank0.engine", log=folder / "log", progress=progress)


def left_behind(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_whole_plan_with_what_was_asked(step: Step, fake_trt: Fake, tmp_path: Path) -> None:
    fake_trt("ok")
    stages = Stages()
    report = compile_bodies(step, tmp_path, stages, sm=(80, 89))
    text = report.path.read_bytes()
    assert text.startswith(b"half ") and len(text) == report.nbytes and left_behind(tmp_path) == {"rank0.engine", "log"}
    asked = json.loads(text[5:])
    assert asked["capabilities"] == {"0": "SM80", "1": "SM89"} and report.sm == (80, 89)
    assert asked["features"] == ["ALIASED_PLUGIN_IO_10_03"] and asked["flags"] == ["REQUIRE_USER_ALLOCATION"]
    decode, mixed = asked["profiles"]
    assert decode["input_ids"] == [[1], [16], [32]] and mixed["input_ids"] == [[1], [64], [64]]
    assert decode["cu_query_lens"] == [[2], [3], [5]] and decode["draft_rows"] == [[0], [2], [4]]
    assert decode["kv_pages.0"][2] == [4 * 4 * 16 + 1, 2, 2, 16, 16]
    data = step.weights.read_bytes()
    assert all(bytes.fromhex(head) in data for head in asked["weights"].values()) and len(asked["weights"]) > 50
    assert Path(asked["shim"]).parent.name == "tensorrt_rtx_libs"
    assert ("compile kernels", 2) in stages.told and stages.advanced == 1
    assert report.tensorrt_version == "1.0" and report.peak_bytes > 1e6 and report.parsed is not None


def test_graph_given_as_a_model_stays_unchanged(step: Step, fake_trt: Fake, tmp_path: Path) -> None:
    import onnx
    import onnx_ir as ir

    fake_trt("ok")
    model = ir.from_proto(onnx.ModelProto.FromString(step.graph))
    before = len(list(model.graph))
    plan = plan_engine(model, LIMITS, replace(step.config, plugins="none"), tmp_path)
    compile_engine(plan, step.weights, tmp_path / "e", log=tmp_path / "log")
    assert len(list(model.graph)) == before and model.functions


@pytest.mark.parametrize(
    ("way", "code", "words"),
    [
        ("none", "B041", "no kernel for this"),
        ("raise", "B042", "exit code 1"),
        ("exit", "B042", "exit code 3"),
        ("SIGKILL", "B042", "SIGKILL, killed, most likely by the system for lack of memory"),
        ("SIGABRT", "B042", "SIGABRT, TensorRT aborted"),
        ("SIGSEGV", "B042", "SIGSEGV, TensorRT crashed"),
        ("parse", "B040", "Frobnicate node_7: no importer"),
        ("weight", "B040", "does not take the weight"),
    ],
)
def test_every_bad_end_is_an_error_and_leaves_no_plan(
    way: str, code: str, words: str, step: Step, fake_trt: Fake, tmp_path: Path
) -> None:
    fake_trt(way)
    with pytest.raises(BuildError) as caught:
        compile_bodies(step, tmp_path)
    assert caught.value.code == code and words in str(caught.value) and str(tmp_path / "log") in str(caught.value)
    assert left_behind(tmp_path) == {"log"}


def test_trace_of_the_child_stands_in_the_log(step: Step, fake_trt: Fake, tmp_path: Path) -> None:
    fake_trt("raise")
    with pytest.raises(BuildError):
        compile_bodies(step, tmp_path)
    assert "RuntimeError: from inside" in (tmp_path / "log").read_text()


def test_cheap_faults_come_together_before_any_child(step: Step, fake_trt: Fake, tmp_path: Path) -> None:
    fake_trt("ok")
    config = replace(step.config, sm=(75, 90), dtype="float32")
    with pytest.raises(HspecError) as caught:
        plan_engine(step.graph, LIMITS, config, tmp_path, plugin_library=tmp_path / "gone.so")
    assert [fault.code for fault in caught.value.faults] == ["B044", "B044", "B047", "L002"]
    assert not list(tmp_path.iterdir())


def test_missing_package(step: Step, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"B043.*pip install 'hspec_trt\[tensorrt\]'"):
        compile_bodies(step, tmp_path, backend="tensorrt")


def test_backend_that_compiles_nothing(step: Step, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="B043"):
        compile_bodies(step, tmp_path, backend="onnxruntime")


def test_missing_kernels_are_named_per_architecture(step: Step, fake_trt: Fake, tmp_path: Path) -> None:
    fake_trt("ok")
    with pytest.raises(HspecError) as caught:
        plan_engine(step.graph, LIMITS, replace(step.config, sm=(86, 89)), tmp_path, plugin_library=plugin_library())
    text = str(caught.value)
    assert caught.value.code == "B046" and "append_kv (type bfloat16, HEAD_DIM 16, GROUP 2" in text
    assert "for sm_86" in text and "for sm_89" in text and "more)" in text
    # The remedy names every need, in the form that compile_kernels.py reads.
    needs = re.findall(r"--need (\S+)", text)
    assert {need.split(":")[0] for need in needs} == {"paged", "shared", "scan", "sample"}
    assert {need_from_text(need).__class__.__name__ for need in needs} >= {"PagedNeed", "SharedNeed", "ScanNeed"}
    assert not list(tmp_path.iterdir())


def test_plugin_library_of_another_contract(step: Step, fake_trt: Fake, tmp_path: Path) -> None:
    fake_trt("ok")
    wrong = tmp_path / "wrong.so"
    wrong.write_text("no library")
    with pytest.raises(LoadError, match="L002"):
        plan_engine(step.graph, LIMITS, step.config, tmp_path, plugin_library=wrong)


def test_weights_file_that_is_too_short(step: Step, fake_trt: Fake, tmp_path: Path) -> None:
    fake_trt("ok")
    short = tmp_path / "short.safetensors"
    short.write_bytes(step.weights.read_bytes()[:5000])
    with pytest.raises(BuildError, match=r"B048.*5000 bytes"):
        compile_bodies(replace(step, weights=short), tmp_path)


def test_too_little_memory_and_disk_are_told_together(
    step: Step, fake_trt: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_trt("ok")
    monkeypatch.setattr(estimates, "free_memory", lambda: 1 << 20)
    disk = estimates.shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(estimates.shutil, "disk_usage", lambda _: disk)
    with pytest.raises(HspecError) as caught:
        compile_bodies(step, tmp_path)
    assert [fault.code for fault in caught.value.faults] == ["B010", "B011"]
    assert not list(tmp_path.iterdir())


def test_estimate_grows_with_the_weights() -> None:
    small, large = (estimates.estimate_build(size, plugins=True) for size in (10**8, 10**9))
    assert small.memory_bytes < large.memory_bytes and small.seconds < large.seconds
    assert large.disk_bytes > 10**9


def test_interrupt_ends_the_child_and_leaves_no_plan(step: Step, fake_trt: Fake, tmp_path: Path) -> None:
    class Impatient(Stages):
        def stage(self, name: str, total: int | None = None) -> None:
            if name == "compile kernels":
                raise KeyboardInterrupt

    fake_trt("ok")
    with pytest.raises(KeyboardInterrupt):
        compile_bodies(step, tmp_path, Impatient())
    assert left_behind(tmp_path) == {"log"}
    assert not [child for child in psutil.Process().children() if "engine.worker" in " ".join(child.cmdline())]
