# SPDX-License-Identifier: Apache-2.0
"""Writes safetensors files, also broken ones: header and data are given apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hspec_trt.dtypes import BY_NUMPY


def header_of(tensors: Mapping[str, np.ndarray]) -> dict[str, object]:
    """The header that describes the tensors, laid out one after the other."""
    header: dict[str, object] = {}
    offset = 0
    for name, values in tensors.items():
        end = offset + values.nbytes
        dtype = BY_NUMPY[values.dtype].safetensors
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [offset, end]}
        offset = end
    return header


def data_of(tensors: Mapping[str, np.ndarray]) -> bytes:
    """The data section of the tensors."""
    return b"".join(np.ascontiguousarray(values).tobytes() for values in tensors.values())


def assemble(header: dict[str, object] | bytes, data: bytes) -> bytes:
    """A file from a header (an object, or its text as it is to stand in the file) and a data section."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    if not isinstance(header, bytes):
        text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray]) -> Path:
    """Write a sound file."""
    path.write_bytes(assemble(header_of(tensors), data_of(tensors)))
    return path
