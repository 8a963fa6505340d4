# SPDX-License-Identifier: Apache-2.0
"""What a build will take: memory, disk and time, from the size of the weights; checked before the start.

The factors are fits to the measurements of ``benchmarks/rtx_builds.py``, rounded up.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hspec_trt.errors import BuildError, Faults
from hspec_trt.machine import free_memory

MEMORY_FACTOR: Final = 2.6
"""Anonymous memory at the peak, in weights: TensorRT holds them transformed, and again in the plan."""
MEMORY_BASE: Final = 1 << 30
MEMORY_BASE_BODIES: Final = 2 << 30
"""Function bodies of a few dozen ops are many thousand layers, which TensorRT fuses."""
DISK_BASE: Final = 256 << 20
SECONDS_PER_GB: Final = 30.0
SECONDS_PER_PLUGIN_BUILD: Final = 20.0
SECONDS_PER_BODY_BUILD: Final = 240.0


@dataclass(frozen=True)
class BuildEstimate:
    """What one build will take, roughly.

    Attributes:
        memory_bytes: host memory at the peak, without the mapped weights (the system may drop those).
        disk_bytes: of the plan.
        seconds: on two idle cores.
    """

    memory_bytes: int
    disk_bytes: int
    seconds: float


def estimate_build(weight_bytes: int, *, plugins: bool) -> BuildEstimate:
    """Estimate a build.

    Args:
        weight_bytes: of all weights that the graph refers to.
        plugins: whether plugin kernels or function bodies are compiled.
    """
    start = SECONDS_PER_PLUGIN_BUILD if plugins else SECONDS_PER_BODY_BUILD
    return BuildEstimate(
        memory_bytes=int(MEMORY_FACTOR * weight_bytes) + (MEMORY_BASE if plugins else MEMORY_BASE_BODIES),
        disk_bytes=weight_bytes + DISK_BASE,
        seconds=start + SECONDS_PER_GB * weight_bytes / 1e9,
    )


def check_room(estimate: BuildEstimate, folder: Path) -> None:
    """Refuse a build for which memory or disk will not do.

    Raises:
        BuildError: B010 memory, B011 disk; both together where both are short.
    """
    faults = Faults()
    free = free_memory()
    if free < estimate.memory_bytes:
        faults.add(
            BuildError(
                "B010",
                f"{free / 2**30:.1f} GiB of memory are free",
                needed=f"about {estimate.memory_bytes / 2**30:.1f} GiB to compile the engine",
                fix="Close other programs, or build on a machine with more memory",
            )
        )
    free_disk = shutil.disk_usage(folder).free
    if free_disk < estimate.disk_bytes:
        faults.add(
            BuildError(
                "B011",
                f"{free_disk / 2**30:.1f} GiB of disk are free",
                needed=f"{estimate.disk_bytes / 2**30:.1f} GiB for the compiled engine",
                where=str(folder),
                fix="Free some space or choose another --output",
            )
        )
    faults.raise_any()
