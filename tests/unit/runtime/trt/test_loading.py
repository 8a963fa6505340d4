# SPDX-License-Identifier: Apache-2.0
"""An engine folder with a compiled plan: served through `LLM` and the command line, or refused in words."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from hspec_trt import contract, native
from hspec_trt.bundle import Artifact, Manifest, record_file
from hspec_trt.cli import main
from hspec_trt.config.build import FEEDBACK, BuildConfig
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import HspecError
from hspec_trt.runtime.engine import load_engine
from hspec_trt.runtime.llm import LLM
from hspec_trt.runtime.loading import limits_of
from hspec_trt.runtime.options import RuntimeOptions
from tests.support.engines import make_engine
from tests.support.golden_pair import hspec_pair
from tests.support.gpu_double import HostGpu, Status
from tests.support.trt_double import FakeTensorRt, write_plan
from tests.support.trt_engine import graph_profiles
from tests.unit.test_native import FakeCreator, description, fake_library

PLAN = "rank0.engine"
PARAMS = SamplingParams(max_tokens=50, temperature=0.8, seed=4, drafts="on")


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    manifest = Manifest.from_json(path.read_bytes(), "")
    files = {item.name: record_file(item) for item in sorted(folder.iterdir()) if item.name != "config.json"}
    path.write_bytes(replace(manifest, files=files, **changes).to_json())


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = BuildConfig(page_size=16, max_batch_size=4, max_num_tokens=64, max_seq_len=128, extensions=(FEEDBACK,))
    return make_engine(tmp_path_factory.mktemp("engine") / "cpu", hspec_pair("hspec_qwen3"), build=build)


@pytest.fixture
def engine(on_cpu: Path, tmp_path: Path) -> Path:
    """The same engine with a plan, as ``--plugins kernels`` leaves it, for SM 89 and the double's version."""
    folder = tmp_path / "engine"
    folder.mkdir()
    for path in on_cpu.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    manifest = Manifest.from_json((folder / "config.json").read_bytes(), "")
    graph = on_cpu / "graph.onnx"
    write_plan(folder / PLAN, graph, graph_profiles(graph, limits_of(manifest)), aliased=True)
    artifact = Artifact("tensorrt-rtx", PLAN, tensorrt_version=_version(), sm=(80, 89))
    rewrite(folder, backend="tensorrt-rtx", artifacts=(artifact,), plugins="kernels")
    return folder


def _version() -> str:
    return native.TRT_PACKAGES["tensorrt-rtx"].version or "1.0"


class Machine:
    """A GPU machine as Python sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.monkeypatch = monkeypatch
        self.gpu = HostGpu()
        self.trt = FakeTensorRt(self.gpu)
        self.loaded: list[str] = []
        self.trt.registry.load_library = self._load_library
        for name in ("cuda", "cuda.bindings"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", self.gpu)
        monkeypatch.setitem(sys.modules, "tensorrt_rtx", self.trt)
        self.library(folder)

    def library(self, folder: Path, **changes: object) -> None:
        """The plugin library that is found."""
        folder.mkdir(exist_ok=True)
        path = fake_library(folder, description(**changes))
        self.monkeypatch.setenv(native.LIBRARY_VARIABLE, str(path))

    def _load_library(self, path: str) -> object:
        self.loaded.append(path)
        self.trt.registry.all_creators = [FakeCreator(name) for name in contract.OPS]
        return object()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path / "lib")


def test_text_is_the_cpu_engines(engine: Path, on_cpu: Path, machine: Machine) -> None:
    prompts = [[5, 6, 7], list(range(40)), list(range(9, 30))]
    with LLM(on_cpu, RuntimeOptions(num_threads=1)) as llm:
        wanted = [output.outputs[0].token_ids for output in llm.generate(prompts, PARAMS)]
    with LLM(engine) as llm:
        assert [output.outputs[0].token_ids for output in llm.generate(prompts, PARAMS)] == wanted
        memory = llm.memory
    assert memory.weights == (engine / PLAN).stat().st_size and memory.prepacked == 0
    assert memory.num_pages == 4 * 8 + 1 and memory.free < machine.gpu.total
    assert len(machine.loaded) == 1


def test_commands(engine: Path, machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", str(engine), "--prompt-ids", "5,6,7", "--max-tokens", "9", "--json"])
    assert not caught.value.code and len(json.loads(capsys.readouterr().out)["token_ids"]) == 9
    with pytest.raises(SystemExit) as caught:
        main(["verify", str(engine), "--prompt-ids", "5,6,7", "--max-tokens", "12"])
    assert not caught.value.code and "verify: passed" in capsys.readouterr().out


def codes(engine: Path) -> list[str]:
    with pytest.raises(HspecError) as caught:
        load_engine(engine)
    return [fault.code for fault in caught.value.faults]


def test_no_gpu(engine: Path, machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.gpu.fail["cudaGetDeviceCount"] = Status.cudaErrorInsufficientDriver
    with pytest.raises(SystemExit) as caught:
        main(["run", str(engine), "--prompt", "hello"])
    error = capsys.readouterr().err
    assert caught.value.code == 2 and "error[L042]" in error and "cudaErrorInsufficientDriver" in error
    assert "--backend onnxruntime" in error and not machine.loaded


@pytest.mark.parametrize("module", ["tensorrt_rtx", "cuda.bindings.runtime"])
def test_missing_package(module: str, engine: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(HspecError, match=r"L033.*pip install 'hspec_trt\[rtx\]'"):
        load_engine(engine)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"contract_version": 9}, "contract_version is 9"),
        ({"ops_digest": "0" * 16}, "ops_digest"),
        ({"plugin_version": "2"}, "plugin_version"),
        ({"kernels": {"variants": 3, "sm": [90], "ptx": [100]}}, "kernels for sm 90"),
    ],
)
def test_plugin_library_that_does_not_fit(
    changes: dict[str, object], words: str, engine: Path, machine: Machine, tmp_path: Path
) -> None:
    """L002 before TensorRT sees library or plan."""
    machine.library(tmp_path / "other", **changes)
    with pytest.raises(HspecError, match=rf"L002.*{words}"):
        load_engine(engine)
    assert not machine.loaded and not machine.trt.contexts


def test_newer_gpu_takes_ptx(engine: Path, machine: Machine, tmp_path: Path) -> None:
    machine.library(tmp_path / "other", kernels={"variants": 3, "sm": [90], "ptx": [80]})
    assert load_engine(engine).core.session.num_pages > 1


def test_plan_of_another_version_for_another_gpu(engine: Path, machine: Machine) -> None:
    artifact = Artifact("tensorrt-rtx", PLAN, tensorrt_version="99.1.0", sm=(80, 89))
    rewrite(engine, artifacts=(artifact,))
    machine.gpu.sm = 86
    assert codes(engine) == ["L038", "L038", "L002"]
    assert not machine.trt.contexts


def test_plan_that_tensorrt_refuses(engine: Path, machine: Machine) -> None:
    (engine / PLAN).write_bytes(b"\x00 no plan")
    rewrite(engine)
    with pytest.raises(HspecError, match=r"L039.*magic number does not match"):
        load_engine(engine)


def test_plan_that_contexts_cannot_be_configured_for(engine: Path, machine: Machine) -> None:
    machine.trt.config_fails = True
    with pytest.raises(HspecError, match=r"L039.*no runtime configuration"):
        load_engine(engine)


def test_plan_with_other_tensors(engine: Path, machine: Machine) -> None:
    """The manifest tells of no feedback, the plan has its outputs."""
    manifest = Manifest.from_json((engine / "config.json").read_bytes(), "")
    rewrite(engine, limits=replace(manifest.limits, extensions=()))
    with pytest.raises(HspecError, match=r"L031.*unknown outputs: \['next_context_lens', 'next_input_ids'\]"):
        load_engine(engine)


def test_plan_with_one_profile(engine: Path, machine: Machine, on_cpu: Path) -> None:
    manifest = Manifest.from_json((engine / "config.json").read_bytes(), "")
    profiles = graph_profiles(on_cpu / "graph.onnx", limits_of(manifest))
    write_plan(engine / PLAN, on_cpu / "graph.onnx", profiles[:1], aliased=True)
    rewrite(engine)
    with pytest.raises(HspecError, match=r"L031.*1 optimization profiles"):
        load_engine(engine)


def test_gpu_without_room(engine: Path, machine: Machine) -> None:
    machine.gpu.total = 4096
    assert codes(engine) == ["L035"]
    machine.gpu.total = 220_000
    with pytest.raises(HspecError, match=r"L035.*for pages"):
        load_engine(engine)


def test_folder_without_plugins_needs_no_library(
    engine: Path, machine: Machine, on_cpu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native.LIBRARY_VARIABLE, str(tmp_path / "gone.so"))
    manifest = Manifest.from_json((engine / "config.json").read_bytes(), "")
    profiles = graph_profiles(on_cpu / "graph.onnx", limits_of(manifest))
    write_plan(engine / PLAN, on_cpu / "graph.onnx", profiles, aliased=False)
    rewrite(engine, plugins="none")
    with LLM(engine) as llm:
        assert len(llm.generate([5, 6, 7], PARAMS).outputs[0].token_ids) == 50
    assert not machine.loaded
