# SPDX-License-Identifier: Apache-2.0
"""Builds the recording CUDA driver, and kernels whose "code" is text that this driver reads."""

from __future__ import annotations

import fcntl
import subprocess
from functools import cache
from pathlib import Path

from build_scripts.build_plugins import CUDA, TENSORRT
from build_scripts.kernel_table import CompiledKernel
from plugins.kernels.catalog import KERNELS
from plugins.kernels.variants import Variant

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).parent / "recording_driver"
BUILD = ROOT / "build" / "tests-recording-driver"
LIBRARY = "libcuda.so.1"
SM = 80
MULTIPROCESSORS = 20
"""As recording_cuda.cpp says."""
LARGE_SHARED = 100_000
"""Bytes that a kernel may have only after it was asked for."""


@cache
def recording_driver() -> Path:
    """The library, named as the driver is; its folder goes on LD_LIBRARY_PATH of a process of its own."""
    BUILD.mkdir(parents=True, exist_ok=True)
    library = BUILD / LIBRARY
    command = ["g++", "-std=c++17", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-o", str(library)]
    command += [f"-I{SOURCES}", f"-I{ROOT / 'plugins' / 'include'}"]
    command += [f"-isystem{TENSORRT.folder()}", f"-isystem{CUDA.folder()}"]
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([*command, *map(str, sorted(SOURCES.glob("*.cpp"))), "-ldl"], check=True)
    return library


def told_kernel(variant: Variant) -> CompiledKernel:
    """A kernel for the recording driver; threads and shared memory differ from one kind to the next."""
    index = list(KERNELS).index(variant.kernel)
    sizes = ["4" if arg.type in ("i32", "f32") else "8" for arg in KERNELS[variant.kernel].args] + ["8", "8"]
    code = f"{variant.kernel} {constants(variant)} {','.join(sizes)}\0".encode()
    shared = LARGE_SHARED if variant.kernel == "prefill_attention" else 16 * index
    threads = 32 * (1 + index)
    return CompiledKernel(
        variant.kernel, variant.dtype, variant.key, SM, False, variant.kernel, threads, shared, 0, 0, code
    )


def constants(variant: Variant) -> str:
    """Type and key in one word."""
    return ",".join(map(str, (variant.dtype, *variant.key)))
