# SPDX-License-Identifier: Apache-2.0
"""Both runtimes refuse to load the same compiled engines, with the same codes and texts.

Each runs on its stand-in for a GPU machine. Where a text quotes what the driver said, the quotation is left out.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hspec_trt import contract, native
from hspec_trt.bundle import Artifact, Manifest, open_engine, record_file
from hspec_trt.config.build import FEEDBACK, BuildConfig
from hspec_trt.errors import HspecError
from hspec_trt.runtime.loading import limits_of, load_session
from hspec_trt.runtime.options import RuntimeOptions
from tests.support.engines import make_engine
from tests.support.fake_gpu_build import fake_gpu
from tests.support.golden_pair import hspec_pair
from tests.support.gpu_double import HostGpu, Status
from tests.support.gpu_machine import TENSORRT_VERSION, plan_text
from tests.support.load_machine import told_on
from tests.support.trt_double import Engine, FakeTensorRt, write_plan
from tests.support.trt_engine import graph_profiles
from tests.unit.test_native import FakeCreator, description, fake_library

PLAN = "rank0.engine"
SM = 90
OF_THE_DRIVER = (
    re.compile(r"(?<=to run on) \([^)]*\)"),
    re.compile(r"(?<=does not hold the engine): [^;]*?(?= \()"),
    re.compile(r"(?<= pages): [^.;]*"),
)


@dataclass
class Machine:
    """Both stand-ins, and an engine folder on their disk.

    Attributes:
        graph: what the plan computes.
        environment: of the C++ runtime's process.
        options: of both runtimes.
    """

    folder: Path
    graph: Path
    library: Path
    monkeypatch: pytest.MonkeyPatch
    gpu: HostGpu = field(default_factory=lambda: HostGpu(sm=SM))
    plan: bytes | None = None
    profiles: int = 2
    takes_plugins: bool = True
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    only_cpp: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trt = FakeTensorRt(self.gpu, compiles_at_run_time=False)
        self.trt.registry.load_library = self._load_library
        for name in ("cuda", "cuda.bindings"):
            self.monkeypatch.setitem(sys.modules, name, ModuleType(name))
        self.monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", self.gpu)
        self.monkeypatch.setitem(sys.modules, "tensorrt", self.trt)
        self.monkeypatch.setattr(importlib.metadata, "version", lambda name: TENSORRT_VERSION)
        self.plugins(sm=[SM])

    def _load_library(self, path: str) -> object:
        if not self.takes_plugins:
            return None
        self.trt.registry.all_creators = [FakeCreator(name) for name in contract.OPS]
        return object()

    def plugins(self, *, sm: list[int], **changes: object) -> None:
        """The plugin library that both find."""
        kernels = {"variants": 3, "sm": sm, "ptx": []}
        self.plugins_at(fake_library(self.folder.parent, description(kernels=kernels, **changes)))

    def plugins_at(self, path: Path) -> None:
        self.monkeypatch.setenv(native.LIBRARY_VARIABLE, str(path))

    def rewrite(self, **changes: object) -> None:
        path = self.folder / "config.json"
        path.write_bytes(replace(Manifest.from_json(path.read_bytes(), ""), **changes).to_json())  # type: ignore[arg-type]

    def artifact(self, **changes: object) -> None:
        artifact = Manifest.from_json((self.folder / "config.json").read_bytes(), "").artifacts[0]
        self.rewrite(artifacts=(replace(artifact, **changes),))  # type: ignore[arg-type]

    def _seal(self) -> None:
        if (self.folder / PLAN).exists():
            self.rewrite(files={PLAN: record_file(self.folder / PLAN)})

    def python_says(self) -> str:
        """What the Python runtime tells of the folder, with the plan as its stand-in reads it."""
        manifest = Manifest.from_json((self.folder / "config.json").read_bytes(), "")
        if self.plan is None:
            shapes = graph_profiles(self.graph, limits_of(manifest))[: self.profiles]
            write_plan(self.folder / PLAN, self.graph, shapes, aliased=manifest.plugins == "kernels")
        else:
            (self.folder / PLAN).write_bytes(self.plan)
        self._seal()
        try:
            load_session(open_engine(self.folder), RuntimeOptions(**self.options))
        except HspecError as error:
            return str(error)
        return "loads"

    def cpp_says(self) -> str:
        """The same of the C++ runtime."""
        text = plan_text(self.graph).replace("profiles 2", f"profiles {self.profiles}").encode()
        (self.folder / PLAN).write_bytes(self.plan or text)
        self._seal()
        return told_on(fake_gpu(), self.library, self.folder, {**self.options, **self.only_cpp}, self.environment)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = BuildConfig(page_size=16, max_batch_size=4, max_num_tokens=48, extensions=(FEEDBACK,))
    return make_engine(tmp_path_factory.mktemp("built") / "engine", hspec_pair("hspec_llama"), build=build)


@pytest.fixture
def machine(built: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / PLAN).write_bytes(b"")
    artifact = Artifact("tensorrt", PLAN, TENSORRT_VERSION, (SM,))
    manifest = replace(open_engine(built).manifest, backend="tensorrt", artifacts=(artifact,), plugins="kernels")
    (folder / "config.json").write_bytes(replace(manifest, files={PLAN: record_file(folder / PLAN)}).to_json())
    return Machine(folder, built / "graph.onnx", library, monkeypatch)


def _no_gpu(machine: Machine, cpp: Mapping[str, str]) -> None:
    machine.gpu.fail["cudaGetDeviceCount"] = Status.cudaErrorInsufficientDriver
    machine.environment.update(cpp)


def _no_memory(machine: Machine) -> None:
    machine.gpu.fail["cudaMalloc"] = Status.cudaErrorMemoryAllocation
    machine.environment["FAKE_GPU_FAIL"] = "cuMemAlloc_v2"


def _no_room_for_pages(machine: Machine) -> None:
    """The machine's sixth block: scratch, inputs and outputs come before the pools of the third layer."""
    calls, plain = count(1), machine.gpu.cudaMalloc
    out_of_memory = (Status.cudaErrorMemoryAllocation, None)
    machine.monkeypatch.setattr(
        machine.gpu, "cudaMalloc", lambda size: plain(size) if next(calls) != 6 else out_of_memory, raising=False
    )
    machine.environment["FAKE_GPU_FAIL"] = "cuMemAlloc_v2:6"


def _no_context(machine: Machine) -> None:
    machine.monkeypatch.setattr(Engine, "create_execution_context", lambda self, strategy: None)
    machine.environment["FAKE_GPU_FAIL"] = "createExecutionContext"


def _not_taken(machine: Machine) -> None:
    machine.takes_plugins = False
    machine.environment["FAKE_GPU_FAIL"] = "loadLibrary"


def _no_library_of_ours(machine: Machine, content: bytes) -> None:
    path = machine.folder.parent / "other.so"
    path.write_bytes(content)
    machine.plugins_at(path)


def _other_device(machine: Machine) -> None:
    machine.gpu.fail["cudaGetDeviceCount"] = Status.cudaErrorInsufficientDriver
    machine.only_cpp["device"] = 3


def _extensions(machine: Machine, *names: str) -> None:
    limits = Manifest.from_json((machine.folder / "config.json").read_bytes(), "").limits
    machine.rewrite(limits=replace(limits, extensions=names))


def _set(name: str, value: object) -> Callable[[Machine], None]:
    return lambda machine: setattr(machine, name, value)


WAYS: dict[str, tuple[str, Callable[[Machine], object]]] = {
    "no plugin library": ("L002", lambda m: m.plugins_at(m.folder / "gone.so")),
    "plugin library is text": ("L002", lambda m: _no_library_of_ours(m, b"not ELF")),
    "plugin library is empty": ("L002", lambda m: _no_library_of_ours(m, b"")),
    "plugin library of somebody else": ("L002", lambda m: _no_library_of_ours(m, m.library.read_bytes())),
    "plugin library of another contract": ("L002", lambda m: m.plugins(sm=[SM], contract_version=9)),
    "plugin library of other ops": (
        "L002 L002 L002",
        lambda m: m.plugins(sm=[SM], ops_digest="0" * 16, plugin_version="2", ops={"Gelu": ["scale"]}),
    ),
    "plugin library without kernels for it": ("L002", lambda m: m.plugins(sm=[80, 89])),
    "plugin library without any kernels": ("L002", lambda m: m.plugins(sm=[])),
    "plugins that TensorRT does not take": ("L002", _not_taken),
    "nothing to run": ("L006", lambda m: m.rewrite(artifacts=())),
    "plan that the manifest does not list": ("L006", lambda m: m.artifact(file="rank1.engine")),
    "plan with fewer outputs": ("L031", lambda m: _extensions(m, FEEDBACK, "top_logprobs", "logit_edits")),
    "plan with more outputs": ("L031", _extensions),
    "plan with both": ("L031", lambda m: _extensions(m, "token_masks")),
    "plan with one profile": ("L031", _set("profiles", 1)),
    "device memory": ("L035", _no_memory),
    "device memory for pages": ("L035", _no_room_for_pages),
    "no memory for two pages": ("L035", lambda m: m.options.update(kv_cache_memory=7)),
    "option of a negative size": ("L036", lambda m: m.options.update(kv_cache_memory=-5)),
    "option of no share": ("L036", lambda m: m.options.update(kv_cache_fraction=0.0)),
    "option of more than all": ("L036", lambda m: m.options.update(kv_cache_fraction=1.25)),
    "option that is no number": ("L036", lambda m: m.options.update(kv_cache_fraction=float("nan"))),
    "two options": ("L036 L036", lambda m: m.options.update(kv_cache_memory=-1, kv_cache_fraction=-0.1)),
    "plan of another TensorRT": ("L038", lambda m: m.artifact(tensorrt_version="9.3.0.1")),
    "plan for another GPU": ("L038", lambda m: m.artifact(sm=(80, 86))),
    "plan and plugins for another machine": (
        "L038 L038 L002",
        lambda m: (m.artifact(sm=(80,), tensorrt_version="11.0"), m.plugins(sm=[80])),
    ),
    "plan that is none": ("L039", _set("plan", b"\x00 no plan")),
    "no execution context": ("L039", _no_context),
    "no driver": ("L042", lambda m: _no_gpu(m, {"LD_LIBRARY_PATH": ""})),
    "driver that does not start": ("L042", lambda m: _no_gpu(m, {"FAKE_GPU_FAIL": "cuInit"})),
    "no GPU": ("L042", lambda m: _no_gpu(m, {"FAKE_GPU_FAIL": "cuDeviceGetCount"})),
    "no GPU of that number": ("L042", _other_device),
}


@pytest.mark.parametrize("way", WAYS)
def test_codes_and_texts_are_those_of_python(way: str, machine: Machine) -> None:
    codes, break_it = WAYS[way]
    break_it(machine)
    told, cpp = machine.python_says(), machine.cpp_says()
    assert re.findall(r"error\[(\w+)\]", told) == codes.split()
    for quotation in OF_THE_DRIVER:
        told, cpp = quotation.sub("", told), quotation.sub("", cpp)
    assert cpp == told


def test_a_whole_engine_loads(machine: Machine) -> None:
    assert machine.python_says() == machine.cpp_says() == "loads"


def test_a_plan_without_plugins_needs_no_library(machine: Machine) -> None:
    machine.rewrite(plugins="none")
    machine.plugins_at(machine.folder / "gone.so")
    assert machine.python_says() == machine.cpp_says() == "loads"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"HSPEC_TRT_TENSORRT_LIBRARY": "/nowhere/libnvinfer.so"}, "/nowhere/libnvinfer.so"),
        ({"FAKE_GPU_FAIL": "version"}, "it is version 11.14.1.48, and this runtime was compiled for 10.14"),
        ({"HSPEC_TRT_TENSORRT_LIBRARY": "libc.so.6"}, "it has no getInferLibMajorVersion"),
    ],
)
def test_no_tensorrt(environment: dict[str, str], words: str, machine: Machine) -> None:
    """Python needs a package, C++ a library: one code, and each names what it needs."""
    machine.environment.update(environment)
    machine.monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert machine.python_says().startswith("error[L033]: this engine needs the package tensorrt: ")
    told = machine.cpp_says()
    assert told.startswith("error[L033]: this engine needs the library of tensorrt: ") and words in told
    assert "needed: libnvinfer.so.10" in told and "HSPEC_TRT_TENSORRT_LIBRARY" in told


def test_backends_that_only_python_has(machine: Machine) -> None:
    machine.rewrite(backend="onnxruntime")
    assert machine.cpp_says() == (
        "error[L032]: backend 'onnxruntime' cannot be run here; needed: one of tensorrt-rtx, tensorrt "
        f"({machine.folder}). Build with --backend tensorrt-rtx or tensorrt, or run it from Python"
    )


def test_backend_compiled_without_its_headers(machine: Machine) -> None:
    cache = (machine.library.parent / "CMakeCache.txt").read_text(encoding="utf-8")
    if "TENSORRT_RTX_HEADERS:PATH=TENSORRT_RTX_HEADERS-NOTFOUND" not in cache:
        pytest.skip("built with the headers of TensorRT for RTX")
    machine.rewrite(backend="tensorrt-rtx")
    told = machine.cpp_says()
    assert told.startswith("error[L032]: this runtime was compiled without the headers of tensorrt-rtx")
    assert told.endswith("Compile it with TENSORRT_RTX_INCLUDE_DIR")
