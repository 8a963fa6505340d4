# SPDX-License-Identifier: Apache-2.0
"""Reads the header of a safetensors file, checks it against the file, and maps its tensors.

Owns the format (8 bytes header length, JSON header, data). It does not know shards or model names. Every check is made
on the header alone; no tensor byte is touched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard

from hspec_trt.checkpoint.json_text import JsonValue, parse_object
from hspec_trt.checkpoint.tensors import MappedBytes, MappedTensor, map_file
from hspec_trt.dtypes import BY_SAFETENSORS
from hspec_trt.errors import CheckpointError, Faults

MAX_NAME: Final = 512
MAX_HEADER_BYTES: Final = 100_000_000  # the limit of the format's own library
_PREFIX_BYTES: Final = 8
_UNSUPPORTED_BITS: Final = {"I16": 16, "U16": 16, "U32": 32, "U64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8}


@dataclass(frozen=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def open_safetensors(path: Path, *, allow_trailing: bool = False) -> dict[str, MappedTensor]:
    """Map a safetensors file.

    Args:
        path: the file, already known to lie where it may be opened.
        allow_trailing: accept bytes after the last tensor.

    Returns:
        The tensors by stored name, in the order of the header.

    Raises:
        CheckpointError: C003 to C008 and C010, see `hspec_trt.checkpoint.codes`; several at once as a `FaultGroup`.
    """
    mapped = map_file(path, at_least=_PREFIX_BYTES)
    start = _PREFIX_BYTES + _header_bytes(mapped, path)
    entries = _parse_header(mapped[_PREFIX_BYTES:start].tobytes(), path)
    _check_layout(entries, start, len(mapped), path, allow_trailing=allow_trailing)
    _check_types(entries, path)
    return {
        entry.name: MappedTensor(
            entry.name,
            BY_SAFETENSORS[entry.dtype],
            entry.shape,
            path,
            start + entry.begin,
            entry.end - entry.begin,
            mapped,
        )
        for entry in entries
    }


def _header_bytes(mapped: MappedBytes, path: Path) -> int:
    """The header's length, bytes."""
    length = int.from_bytes(mapped[:_PREFIX_BYTES].tobytes(), "little")
    if length > len(mapped) - _PREFIX_BYTES:
        raise CheckpointError("C004", f"header length {length} exceeds file size {len(mapped)}", where=path.name)
    if length > MAX_HEADER_BYTES:
        raise CheckpointError("C004", f"header length {length}", needed=f"at most {MAX_HEADER_BYTES}", where=path.name)
    if length < 2:
        raise CheckpointError("C004", f"header length {length}", needed="at least 2 bytes, '{}'", where=path.name)
    return length


def _parse_header(data: bytes, path: Path) -> list[_Entry]:
    header = parse_object(data, where=f"the header of {path.name}", code="C005")
    header.pop("__metadata__", None)
    faults, entries = Faults(), []
    for name, value in header.items():
        with faults.collect():
            entries.append(_parse_entry(name, value, path))
    faults.raise_any()
    return entries


def _parse_entry(name: str, value: JsonValue, path: Path) -> _Entry:
    if isinstance(value, dict):
        dtype, shape, span = value.get("dtype"), value.get("shape"), value.get("data_offsets")
        if (
            isinstance(dtype, str)
            and name.isprintable()
            and len(name) <= MAX_NAME
            and _is_sizes(shape)
            and _is_sizes(span)
            and len(span) == 2
        ):
            return _Entry(name, dtype, tuple(shape), span[0], span[1])
    raise CheckpointError(
        "C005",
        f"the header entry of {name[:200]!r} is malformed",
        needed=f"a printable name of at most {MAX_NAME} characters, and dtype, shape and data_offsets",
        where=path.name,
    )


def _is_sizes(value: JsonValue) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_layout(entries: list[_Entry], start: int, size: int, path: Path, *, allow_trailing: bool) -> None:
    """Refuse a data section that the tensors do not cover exactly, one after the other.

    Args:
        start: where the data section begins in the file, bytes.
        size: of the file, bytes.
    """
    faults, end, last = Faults(), 0, "the header"
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != end:
            what = "overlaps" if entry.begin < end else "leaves a hole after"
            found = f"{entry.name!r} at bytes {entry.begin}..{entry.end} {what} {last}, which ends at {end}"
            faults.add(CheckpointError("C006", found, where=path.name))
        end, last = max(end, entry.end), repr(entry.name)
    faults.raise_any()
    if start + end > size:
        found = f"{path.name} is {size} bytes, its header needs {start + end} (truncated download?)"
        raise CheckpointError("C003", found)
    if start + end < size and not allow_trailing:
        found = f"{size - start - end} bytes follow the last tensor"
        raise CheckpointError(
            "C007", found, where=path.name, fix="If they are meant to be there, pass --allow-trailing"
        )


def _check_types(entries: list[_Entry], path: Path) -> None:
    """Refuse spans that do not fit type and shape, and types that no weight of ours can have."""
    faults = Faults()
    for entry in entries:
        known = BY_SAFETENSORS.get(entry.dtype)
        bits = known.itemsize * 8 if known else _UNSUPPORTED_BITS.get(entry.dtype)
        if bits is not None and math.prod(entry.shape) * bits != (entry.end - entry.begin) * 8:
            found = f"{entry.name!r} spans {entry.end - entry.begin} bytes"
            needed = f"{math.prod(entry.shape) * bits // 8} for {entry.dtype} {list(entry.shape)}"
            faults.add(CheckpointError("C006", found, needed=needed, where=path.name))
        elif known is None:
            found, needed = f"{entry.name!r} has element type {entry.dtype}", ", ".join(BY_SAFETENSORS)
            fix = "Quantised weights are not supported: take the checkpoint in bfloat16, float16 or float32"
            faults.add(CheckpointError("C008", found, needed=needed, where=path.name, fix=fix))
    faults.raise_any()
