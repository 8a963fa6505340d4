# SPDX-License-Identifier: Apache-2.0
"""What runs the kernels: Triton (interpreter on a CPU, just-in-time compiler on a GPU), or the plugin library."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from build_scripts.gpu_check.library_ops import LibraryOps
from build_scripts.gpu_check.ops import Ops
from build_scripts.gpu_check.source_ops import Argument, SourceOps
from plugins.kernels.catalog import KERNELS
from plugins.kernels.geometry import Grid
from plugins.kernels.variants import FALLBACK_SM, SHARED_BYTES, Variant, tuning


@dataclass(frozen=True)
class TritonRunner:
    """Runs kernels from source. With TRITON_INTERPRET=1 they run on the CPU.

    Attributes:
        multiprocessors: of the GPU; under the interpreter any number, it only steers the splits.
        sm: of the GPU; picks the compile options.
    """

    multiprocessors: int = 132
    sm: int = 80

    def __call__(self, variant: Variant, grid: Grid, args: Sequence[Argument]) -> None:
        """Launch `variant`."""
        module = importlib.import_module(f"plugins.kernels.{KERNELS[variant.kernel].module}")
        chosen = tuning(variant, self.sm)
        function = getattr(module, variant.kernel)
        function[grid](*args, **chosen.constants, num_warps=chosen.num_warps, num_stages=chosen.num_stages)


def runner_of_gpu() -> TritonRunner:
    """A runner for the current CUDA device.

    Raises:
        SystemExit: there is none, or Triton was put in interpreter mode.
    """
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device: use --cpu for the interpreter")
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise SystemExit("TRITON_INTERPRET is set: unset it to run on the GPU")
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = 10 * properties.major + properties.minor
    # A GPU without tuning of its own is treated like the smallest.
    sm = capability if capability in SHARED_BYTES else FALLBACK_SM
    return TritonRunner(properties.multi_processor_count, sm)


def choose_ops(library: Path | None, *, cpu: bool, poison: bool = True) -> Ops:
    """The plugin library's launchers, else the sources under the interpreter (`cpu`) or on the GPU.

    Args:
        poison: fill outputs and workspace before each launch; off where time is measured.
    """
    if library:
        return LibraryOps(library.resolve(), poison=poison)
    return SourceOps(TritonRunner() if cpu else runner_of_gpu(), poison=poison)
