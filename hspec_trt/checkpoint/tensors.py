# SPDX-License-Identifier: Apache-2.0
"""One tensor of a checkpoint: its name, type and shape at once, its values when they are asked for.

Owns the protocol and the sources that are plain bytes in a mapped file. It does not know file formats or model names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hspec_trt.dtypes import DType
from hspec_trt.errors import CheckpointError

MappedBytes = NDArray[np.uint8]
"""A whole file, mapped read-only; its pages are loaded when touched."""


class TensorSource(Protocol):
    """A tensor that a checkpoint holds."""

    @property
    def name(self) -> str:
        """Canonical name of the weight, or the stored one before mapping."""

    @property
    def dtype(self) -> DType:
        """Element type of what `read` returns."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what `read` returns."""

    def read(self) -> NDArray[np.generic]:
        """The values: a read-only view of the mapped file where it stores them plainly, else a new array."""

    def read_row(self, index: int) -> NDArray[np.generic]:
        """``read()[index]``, without decoding the other rows."""


@dataclass(frozen=True)
class MappedTensor:
    """A tensor stored plainly (row-major, little-endian) in a mapped file.

    Attributes:
        path: the file, so that an engine may point into it instead of copying.
        offset, nbytes: place of the values in the file, bytes.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    path: Path
    offset: int
    nbytes: int
    mapped: MappedBytes

    def read(self) -> NDArray[np.generic]:
        """A read-only view of the file, `shape` and `dtype` as stated; no bytes are copied."""
        return self.mapped[self.offset : self.offset + self.nbytes].view(self.dtype.numpy).reshape(self.shape)

    def read_row(self, index: int) -> NDArray[np.generic]:
        """``read()[index]``."""
        row: NDArray[np.generic] = self.read()[index]
        return row

    def renamed(self, name: str) -> MappedTensor:
        """The same values under another name."""
        return replace(self, name=name)


def map_file(path: Path, *, at_least: int = 1) -> MappedBytes:
    """Map a file read-only as uint8 ``[size]``.

    Args:
        at_least: bytes that such a file must have.

    Raises:
        CheckpointError: C003 for a file that is shorter, C010 for one that the system cannot map.
    """
    try:
        size = path.stat().st_size
        if size < at_least:
            found = f"{path.name} is {size} bytes, such a file has at least {at_least} (truncated download?)"
            raise CheckpointError("C003", found)
        return np.memmap(path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise CheckpointError("C010", f"cannot map {path}: {error.strerror}") from error
