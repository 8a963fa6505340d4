# SPDX-License-Identifier: Apache-2.0
"""Builds the recording CUDA driver, and kernels whose "code" is text that this driver reads."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from build_scripts.kernel_table import CompiledKernel
from plugins.kernels.catalog import KERNELS
from plugins.kernels.variants import Variant
from tests.support.stand_in_driver import ROOT, build_driver

SOURCES = Path(__file__).parent / "recording_driver"
BUILD = ROOT / "build" / "tests-recording-driver"
SM = 80
MULTIPROCESSORS = 20
"""As recording_cuda.cpp says."""
LARGE_SHARED = 100_000
"""Bytes that a kernel may have only after it was asked for."""


@cache
def recording_driver() -> Path:
    """The library, named as the driver is; its folder goes on LD_LIBRARY_PATH of a process of its own."""
    return build_driver(SOURCES, BUILD)


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
