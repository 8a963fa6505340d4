# SPDX-License-Identifier: Apache-2.0
"""Reads the header of a GGUF file (versions 2 and 3, little-endian) and checks it against the file.

Owns the container format: metadata and tensor descriptions. Every count and length is checked against what is left of
the file before anything is made from it. It does not know what a tensor is for, nor how its blocks are decoded.
The format is that of ggml's ``docs/gguf.md``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from hspec_trt.checkpoint.gguf_types import BlockType, block_type
from hspec_trt.checkpoint.tensors import MappedBytes, map_file
from hspec_trt.errors import CheckpointError

GgufValue: TypeAlias = "bool | int | float | str | list[bool | int | float | str]"

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAX_DIMS: Final = 4
MAX_NAME: Final = 512
MAX_ARRAY: Final = 1 << 21
_MIN_BYTES: Final = 24
_DEFAULT_ALIGNMENT: Final = 32
_MAX_ALIGNMENT: Final = 1 << 16
_FLOAT32, _STRING, _ARRAY = 6, 8, 9
_SCALARS: Final = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8"} | {
    11: "<i8",
    12: "<f8",
}


@dataclass(frozen=True)
class GgufTensor:
    """A tensor as the header describes it.

    Attributes:
        shape: row-major, outermost dim first (the reverse of the file's order).
        offset, nbytes: place of the blocks in the file, bytes.
    """

    name: str
    kind: BlockType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file whose header is sound."""

    path: Path
    metadata: dict[str, GgufValue]
    tensors: dict[str, GgufTensor]
    mapped: MappedBytes


def open_gguf(path: Path) -> GgufFile:
    """Map a GGUF file and read its header.

    Raises:
        CheckpointError: C003, C010, C014, C015, C017, C023.
    """
    mapped = map_file(path, at_least=_MIN_BYTES)
    cursor = _Cursor(mapped, path.name)
    _check_start(cursor)
    num_tensors, num_values = cursor.count(8, 24), cursor.count(8, 12)
    metadata: dict[str, GgufValue] = {}
    for _ in range(num_values):
        key = cursor.text()
        if key in metadata:
            raise cursor.damaged(f"the metadata key {key[:80]!r} is there twice")
        metadata[key] = cursor.value(cursor.integer(4))
    described = [_describe(cursor) for _ in range(num_tensors)]
    return GgufFile(path, metadata, _place(described, metadata, cursor), mapped)


@dataclass
class _Cursor:
    """Walks over the header; refuses to step beyond the file."""

    mapped: MappedBytes
    name: str
    at: int = 0

    def damaged(self, found: str) -> CheckpointError:
        return CheckpointError("C015", found, where=f"{self.name}, byte {self.at}", fix="Download the file again")

    def take(self, nbytes: int) -> bytes:
        if nbytes > self.left:
            raise self.damaged(f"{self.name} is {len(self.mapped)} bytes, its header needs more (truncated download?)")
        start, self.at = self.at, self.at + nbytes
        return self.mapped[start : self.at].tobytes()

    @property
    def left(self) -> int:
        return len(self.mapped) - self.at

    def integer(self, nbytes: int) -> int:
        return int.from_bytes(self.take(nbytes), "little")

    def count(self, nbytes: int, item_bytes: int, *, at_most: int = 1 << 62) -> int:
        """A number of items, each of which takes at least `item_bytes` of what is left."""
        count = self.integer(nbytes)
        if count > at_most:
            raise self.damaged(f"{count} entries, more than {at_most}")
        if count > self.left // item_bytes:
            raise self.damaged(f"{count} entries do not fit into the {self.left} bytes that are left")
        return count

    def text(self) -> str:
        try:
            return self.take(self.count(8, 1)).decode()
        except UnicodeDecodeError:
            raise self.damaged("a string of the header is not UTF-8") from None

    def value(self, kind: int) -> GgufValue:
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            values = self.numbers(kind, 1)
            return values[0]
        item_kind = self.integer(4)
        if item_kind == _STRING:
            return [self.text() for _ in range(self.count(8, 8, at_most=MAX_ARRAY))]
        return self.numbers(item_kind, self.count(8, 1, at_most=MAX_ARRAY))

    def numbers(self, kind: int, count: int) -> list[bool | int | float | str]:
        if kind not in _SCALARS:
            raise self.damaged(f"a metadata value has the unknown type {kind}")
        dtype = np.dtype(_SCALARS[kind])
        stored = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        if kind == _FLOAT32:
            # The shortest decimal: 1e-05 was meant, not 9.999999747378752e-06.
            return [float(str(item)) for item in stored]
        return [item.item() for item in stored]


def _check_start(cursor: _Cursor) -> None:
    magic, version = cursor.take(4), cursor.integer(4)
    where = cursor.name
    if magic != MAGIC:
        raise CheckpointError("C014", f"the file begins with {magic!r}", needed=f"{MAGIC!r}", where=where)
    if version & 0xFFFF == 0 and version:
        raise CheckpointError("C014", "the file is big-endian", needed="little-endian GGUF", where=where)
    if version not in VERSIONS:
        needed = " or ".join(map(str, VERSIONS))
        raise CheckpointError("C014", f"GGUF version {version}", needed=f"version {needed}", where=where)


def _describe(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, type number and offset of the next tensor."""
    name, num_dims = cursor.text(), cursor.integer(4)
    if not name.isprintable() or len(name) > MAX_NAME:
        raise cursor.damaged(f"tensor name {name[:80]!r}")
    if not 1 <= num_dims <= MAX_DIMS:
        raise cursor.damaged(f"tensor {name[:80]!r} has {num_dims} dims")
    dims = struct.unpack(f"<{num_dims}Q", cursor.take(8 * num_dims))
    return name, tuple(reversed(dims)), cursor.integer(4), cursor.integer(8)


def _place(
    described: Sequence[tuple[str, tuple[int, ...], int, int]], metadata: dict[str, GgufValue], cursor: _Cursor
) -> dict[str, GgufTensor]:
    """The tensors with absolute offsets, each inside the file and apart from the others."""
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 1 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise cursor.damaged(f"general.alignment is {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, number, offset in described:
        if name in tensors:
            raise CheckpointError("C023", f"tensor {name[:80]!r} is there twice", where=cursor.name)
        kind = block_type(number, name, where=cursor.name)
        if shape[-1] % kind.block_elements:
            raise cursor.damaged(
                f"{name[:80]!r} has rows of {shape[-1]} elements, {kind.name} has {kind.block_elements}"
            )
        nbytes = math.prod(shape) // kind.block_elements * kind.block_bytes
        tensors[name] = GgufTensor(name, kind, shape, start + offset, nbytes)
    _check_places(list(tensors.values()), alignment, cursor)
    return tensors


def _check_places(tensors: list[GgufTensor], alignment: int, cursor: _Cursor) -> None:
    size, end = len(cursor.mapped), 0
    needed = max((tensor.offset + tensor.nbytes for tensor in tensors), default=0)
    if needed > size:
        raise CheckpointError("C015", f"{cursor.name} is {size} bytes, its header needs {needed} (truncated download?)")
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        if tensor.offset < end or tensor.offset % alignment:
            raise cursor.damaged(f"{tensor.name[:80]!r} overlaps another tensor or is not aligned")
        end = tensor.offset + tensor.nbytes
