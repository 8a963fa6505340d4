# SPDX-License-Identifier: Apache-2.0
"""The size of the workspace, which TensorRT keeps from the build, holds for libraries with other kernels too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from build_scripts.gpu_check import cases
from build_scripts.gpu_check.cases import PagedCase, Place
from build_scripts.gpu_check.library_ops import LibraryOps
from plugins.kernels import geometry
from plugins.kernels.needs import PagedNeed, variants_for
from tests.support.plugin_build import library_with
from tests.support.recording_driver_build import told_kernel


class Asked(LibraryOps):
    """Asks for the size of the workspace, and launches nothing."""

    size = 0

    def _call(self, name: str, *arguments: Any) -> None:
        if name == "hspec_trt_launch":
            self.size = arguments[-2].value
        else:
            super()._call(name, *arguments)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One for a verify width of 1, and one for 64, of eight heads a group."""
    folders = [tmp_path_factory.mktemp("library") for _ in range(2)]
    needs = [[PagedNeed("bfloat16", 64, 8, 16, width)] for width in (1, 64)]
    kernels = [[told_kernel(variant) for variant in variants_for(need)] for need in needs]
    return [library_with(told, folder) for told, folder in zip(kernels, folders, strict=True)]


@pytest.mark.parametrize("longest", [1, 5, 16, 40])
def test_workspace_holds_what_any_tile_writes(libraries: list[Path], longest: int) -> None:
    case = PagedCase("", ((7, longest), (0, 1)), 16, 2, 64, 16)
    inputs = cases.paged_inputs(case, Place(dtype=torch.bfloat16))
    sizes = []
    for library in libraries:
        asked = Asked(library)
        tensors = (inputs.query, inputs.key, inputs.value, inputs.kv_pages)
        asked.paged_attention(case.shape, inputs.step, *tensors, verify_width=1)
        sizes.append(asked.size)
    widest = geometry.widest_query(8, longest)
    assert widest == min(16, longest)
    assert sizes == [4 * geometry.split_workspace_floats(8, widest, 64)] * 2
