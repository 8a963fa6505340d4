# SPDX-License-Identifier: Apache-2.0
"""Ways to run one kernel: through Triton itself (interpreter on a CPU, just-in-time compiler on a GPU)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from build_scripts.gpu_check.launch import Argument
from plugins.kernels.catalog import KERNELS
from plugins.kernels.geometry import Grid
from plugins.kernels.variants import Variant, tuning


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
