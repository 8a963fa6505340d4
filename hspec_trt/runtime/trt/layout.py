# SPDX-License-Identifier: Apache-2.0
"""Many small arrays in one block of memory, so that a step costs one copy each way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hspec_trt.runtime.trt.cuda import ALIGNMENT


@dataclass(frozen=True)
class Place:
    """Where an array lies in a block."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Layout:
    """Places by name; `nbytes` of the whole block, at least one."""

    places: Mapping[str, Place]
    nbytes: int

    @staticmethod
    def of(arrays: Iterable[tuple[str, tuple[int, ...], np.dtype[np.generic]]]) -> Layout:
        """Lay out arrays of these shapes and types one after the other, each aligned.

        Empty arrays get a place as well: TensorRT wants an address for every tensor.
        """
        places: dict[str, Place] = {}
        offset = 0
        for name, shape, dtype in arrays:
            place = places[name] = Place(offset, shape, dtype)
            offset += -(-max(place.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return Layout(places, max(offset, 1))

    def array(self, name: str, block: NDArray[np.uint8]) -> NDArray[np.generic]:
        """The named array inside a block of host memory."""
        place = self.places[name]
        return block[place.offset : place.offset + place.nbytes].view(place.dtype).reshape(place.shape)
