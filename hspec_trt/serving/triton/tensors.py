# SPDX-License-Identifier: Apache-2.0
"""What a tensor of a Triton model is, and NumPy's name for each Triton type. It knows no particular model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

TritonType = Literal["STRING", "BOOL", "UINT8", "UINT64", "INT32", "INT64", "FP16", "FP32"]

NUMPY_TYPES: Final[dict[TritonType, DTypeLike]] = {
    "STRING": np.object_,
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT64": np.uint64,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
}

Array = NDArray[np.generic]
ANY: Final = -1
"""A dimension of any size."""


@dataclass(frozen=True)
class Tensor:
    """One input or output of a Triton model.

    Attributes:
        dims: without the batch dimension; `ANY` is any size.
        optional: an input that a request may leave out.
        scalar: clients send one element, the model sees none of its dimensions (``reshape: { shape: [ ] }``).
        ragged: requests with different sizes may be handed over together.
    """

    name: str
    dtype: TritonType
    dims: tuple[int, ...]
    optional: bool = False
    scalar: bool = False
    ragged: bool = False

    def array(self, values: object) -> Array:
        """Values as an array of this tensor's type (bytes for STRING)."""
        return np.array(values, dtype=NUMPY_TYPES[self.dtype])
