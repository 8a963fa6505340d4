# SPDX-License-Identifier: Apache-2.0
"""The plugin library for tests: built once without kernels, and skipped in words where it cannot be built.

Its objects are the same whatever kernels it embeds, so that a library with others is only linked.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from build_scripts.kernel_table import CompiledKernel, write_table

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "tests-plugins"
"""Kept between runs, so that only changed files are compiled again."""


@cache
def plugin_library(preset: str = "no-kernels") -> Path:
    """The built library; skips the test where a compiler or the TensorRT or CUDA headers are missing."""
    for tool in ("cmake", "g++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    BUILD.mkdir(parents=True, exist_ok=True)
    output = BUILD / preset / "libhspec_trt_plugins.so"
    script = ROOT / "build_scripts" / "build_plugins.py"
    command = [sys.executable, str(script), "--preset", preset, "--build-dir", str(BUILD / f"{preset}.cmake")]
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = subprocess.run([*command, "--output", str(output)], capture_output=True, text=True, check=False)
    for missing in ("no NvInferRuntime.h", "no cuda_runtime_api.h"):
        if missing in result.stderr:
            pytest.skip(f"the plugin library cannot be built here: {missing}")
    assert result.returncode == 0, result.stdout + result.stderr
    return output


def library_with(kernels: Sequence[CompiledKernel], folder: Path) -> Path:
    """The library with these kernels in place of none; it and its table lie in `folder`."""
    plugin_library()
    objects = BUILD / "no-kernels.cmake" / "CMakeFiles" / "hspec_trt_plugins.dir" / "src"
    used = [str(path) for path in sorted(objects.rglob("*.o")) if path.name != "no_kernels.cpp.o"]
    write_table(folder, kernels)
    library = folder / "libhspec_trt_plugins.so"
    exported = ROOT / "plugins" / "src" / "exports.map"
    command = ["g++", "-std=c++17", "-shared", "-fPIC", f"-Wl,--version-script={exported}", f"-Wa,-I{folder}"]
    sources = [str(folder / "kernel_table.cpp"), str(folder / "kernel_blob.S")]
    subprocess.run([*command, "-o", str(library), *used, *sources, "-ldl"], check=True)
    return library
