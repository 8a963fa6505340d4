# SPDX-License-Identifier: Apache-2.0
"""The golden vectors: where they are, and their tensors as PyTorch's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

GOLDEN = Path(__file__).parents[1] / "golden"


@cache
def vectors(case: str) -> dict[str, Tensor]:
    """All tensors of a case's vectors.safetensors."""
    return load_file(GOLDEN / case / "vectors.safetensors")
