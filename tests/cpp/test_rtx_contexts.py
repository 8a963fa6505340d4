# SPDX-License-Identifier: Apache-2.0
"""What the C++ runtime tells TensorRT for RTX about kernels, compiled with headers that look like RTX's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from build_scripts.build_plugins import CUDA, TENSORRT
from tests.support.fake_gpu_build import SOURCES, write_stubs
from tests.support.rtx_headers import rtx_headers
from tests.support.stand_in_driver import ROOT

USER_MANAGED, EAGER, NONE = "2", "1", "2"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    try:
        TENSORRT.folder()
    except SystemExit as missing:
        pytest.skip(f"the runtime cannot be built here: {missing}")
    folder = tmp_path_factory.mktemp("rtx")
    headers = rtx_headers(folder / "include")
    write_stubs(headers, folder)
    runtime = ROOT / "runtime_cpp"
    includes = [folder, SOURCES, runtime / "src", runtime / "include", ROOT / "plugins" / "include"]
    flags = ["g++", "-std=c++17", "-Wall", "-Wextra", *(f"-I{path}" for path in includes)]
    flags += [f"-isystem{headers}", f"-isystem{CUDA.folder()}"]
    plan = [*flags, "-Werror", "-DHSPEC_TRT_FLAVOUR=rtx", "-Dnvinfer1=nvinfer1_rtx", "-c", "-o", str(folder / "plan.o")]
    subprocess.run([*plan, str(runtime / "src" / "trt" / "plan.cpp")], check=True)
    made = folder / "rtx_contexts"
    sources = [Path(__file__).with_name("rtx_contexts.cpp"), *sorted(SOURCES.glob("*.cpp")), folder / "plan.o"]
    subprocess.run([*flags, "-w", "-rdynamic", "-o", str(made), *map(str, sources), "-ldl"], check=True)
    return made


def run(program: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [str(program)], check=False, capture_output=True, text=True, env={**os.environ, **environment}
    )
    return done.stdout.splitlines()


def test_kernels_of_decode_shapes_are_compiled_first_and_those_of_prompts_never(program: Path) -> None:
    """Contexts of the mixed, the decode and the decode profile, with one cache."""
    allocations, kernels, caches = zip(*(line.split() for line in run(program)), strict=True)
    assert kernels == (NONE, EAGER, EAGER) and set(allocations) == {USER_MANAGED}
    assert len(set(caches)) == 1 and caches[0] != "(nil)"


def test_tensorrt_makes_no_configuration(program: Path) -> None:
    assert run(program, FAKE_GPU_FAIL="createRuntimeConfig") == ["no runtime configuration"]
