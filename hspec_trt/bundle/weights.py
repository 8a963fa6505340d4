# SPDX-License-Identifier: Apache-2.0
"""The weights of an engine in one safetensors file, laid out before a byte is written and written one tensor at a time.

Owns the layout and the streaming write. Which tensors an engine stores, and how each is made, is
`hspec_trt.graph.weights`' business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from hspec_trt.dtypes import DType

WEIGHTS_FILE = "weights.safetensors"
HEADER_ALIGNMENT = 4096
"""The data starts on a page boundary, so that a runtime can map single tensors without a copy."""


@dataclass(frozen=True)
class StoredTensor:
    """Where a weight lies (or will lie) on disk.

    Attributes:
        location: file name, relative to the engine folder.
        offset: first byte in that file.
        nbytes: length in bytes.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    location: str
    offset: int
    nbytes: int


class WeightSource(Protocol):
    """A tensor that an engine stores, and how it is made."""

    @property
    def name(self) -> str:
        """Name in the engine, e.g. ``target.model.norm.weight``."""

    @property
    def dtype(self) -> DType:
        """Stored type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Stored shape."""

    def produce(self) -> NDArray[np.generic]:
        """The values, of `dtype` and `shape`; called once."""


def _num_bytes(source: WeightSource) -> int:
    return int(np.prod(source.shape, dtype=np.int64)) * source.dtype.itemsize


def _ordered(sources: Iterable[WeightSource]) -> list[WeightSource]:
    # Wide types first: then every tensor starts at a multiple of its own element size without holes.
    return sorted(sources, key=lambda source: -source.dtype.itemsize)


def _header(sources: Sequence[WeightSource]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "hspec_trt"}}
    start = 0
    for source in sources:
        end = start + _num_bytes(source)
        entries[source.name] = {
            "dtype": source.dtype.safetensors,
            "shape": list(source.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    padding = -(len(text) + 8) % HEADER_ALIGNMENT
    return text + b" " * padding


def plan_weights(sources: Iterable[WeightSource], location: str = WEIGHTS_FILE) -> dict[str, StoredTensor]:
    """Lay out the weights file.

    Args:
        sources: the tensors, with unique names.
        location: file name in the engine folder.

    Returns:
        Name to place, in file order.

    Raises:
        ValueError: two tensors have one name (a fault of the caller, not of a user).
    """
    ordered = _ordered(sources)
    offset = 8 + len(_header(ordered))
    stored: dict[str, StoredTensor] = {}
    for source in ordered:
        if source.name in stored:
            raise ValueError(f"two weights are named {source.name}")
        nbytes = _num_bytes(source)
        stored[source.name] = StoredTensor(source.name, source.dtype, source.shape, location, offset, nbytes)
        offset += nbytes
    return stored


def total_bytes(stored: Mapping[str, StoredTensor]) -> int:
    """Bytes of the weights file, header included."""
    return max((tensor.offset + tensor.nbytes for tensor in stored.values()), default=0)


def write_weights(
    path: Path,
    sources: Iterable[WeightSource],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write the file that `plan_weights` laid out, holding one tensor in memory at a time.

    Args:
        path: the file to create.
        progress: called after each tensor with the bytes that it took.

    Raises:
        OSError: the disk is full or not writable.
        ValueError: a source made other values than it announced (a fault of the caller).
    """
    ordered = _ordered(sources)
    header = _header(ordered)
    with path.open("xb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for source in ordered:
            _write_one(file, source)
            if progress is not None:
                progress(_num_bytes(source))


def _write_one(file: BinaryIO, source: WeightSource) -> None:
    values = source.produce()
    if values.dtype != source.dtype.numpy or values.shape != source.shape:
        raise ValueError(
            f"{source.name}: made {values.dtype} {values.shape}, announced {source.dtype.name} {source.shape}"
        )
    contiguous = np.ascontiguousarray(values)
    file.write(contiguous.reshape(-1).view(np.uint8).data)
