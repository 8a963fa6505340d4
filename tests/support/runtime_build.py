# SPDX-License-Identifier: Apache-2.0
"""The C++ runtime for tests: built once for each preset, and skipped in words where it cannot be built."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "tests-runtime"
"""Kept between runs, so that only changed files are compiled again."""


@cache
def runtime_build(preset: str = "release", *targets: str) -> Path:
    """The build folder of a preset, with these CMake targets built (none: the library)."""
    for tool in ("cmake", "g++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    BUILD.mkdir(parents=True, exist_ok=True)
    folder = BUILD / preset
    script = ROOT / "build_scripts" / "build_runtime.py"
    command = [sys.executable, str(script), "--preset", preset, "--build-dir", str(folder), "--jobs", "2"]
    command += ["--define", "HSPEC_TRT_RUNTIME_TESTS=ON", "--target", *(targets or ("hspec_trt_runtime",))]
    with (BUILD / f"{preset}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def has_tensorrt(folder: Path) -> bool:
    """Whether the build found TensorRT's headers, without which it runs no compiled engine."""
    cached = (folder / "CMakeCache.txt").read_text(encoding="utf-8")
    return not any(f"{name}_HEADERS:PATH={name}_HEADERS-NOTFOUND" in cached for name in ("TENSORRT", "CUDA"))
