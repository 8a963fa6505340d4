# SPDX-License-Identifier: Apache-2.0
"""Damaged safetensors files are refused by their headers; sound ones are read as the format's library reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hspec_trt.checkpoint.safetensors_file import open_safetensors
from hspec_trt.errors import HspecError
from tests.support.faults import codes_of, report_of
from tests.support.safetensors_writer import assemble, data_of, header_of, write_safetensors

TENSORS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(5, dtype=np.float16),
    "c": np.arange(8, dtype=np.int64).reshape(2, 2, 2),
}
Header = dict[str, Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def _edited(edit: Callable[[Header], object]) -> bytes:
    header: Header = json.loads(json.dumps(header_of(TENSORS)))
    edit(header)
    return assemble(header, data_of(TENSORS))


def test_reads_what_the_library_writes(path: Path) -> None:
    tensors = TENSORS | {"bf": np.ones((3, 1), ml_dtypes.bfloat16), "none": np.zeros((0, 4), np.float32)}
    tensors |= {"scalar": np.array(2.5), "bool": np.array([True, False]), "u8": np.arange(3, dtype=np.uint8)}
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})
    found = open_safetensors(path)
    assert set(found) == set(tensors)
    for name, values in tensors.items():
        assert found[name].shape == values.shape
        np.testing.assert_array_equal(found[name].read(), values)


def test_library_reads_what_the_support_writes(path: Path) -> None:
    write_safetensors(path, TENSORS)
    for name, values in safetensors.numpy.load_file(path).items():
        np.testing.assert_array_equal(values, TENSORS[name])


def test_unaligned_data(path: Path) -> None:
    text = json.dumps(header_of(TENSORS)).encode()
    path.write_bytes(assemble(text + b" " * (1 - len(text) % 2), data_of(TENSORS)))
    for name, source in open_safetensors(path).items():
        assert source.offset % 2
        np.testing.assert_array_equal(source.read(), TENSORS[name])


@pytest.mark.parametrize("kept", [0, 1, 7])
def test_shorter_than_a_prefix(path: Path, kept: int) -> None:
    path.write_bytes(b"\0" * kept)
    assert report_of(lambda: open_safetensors(path)).startswith(f"error[C003]: model.safetensors is {kept} bytes")


def test_truncated_data(path: Path) -> None:
    whole = assemble(header_of(TENSORS), data_of(TENSORS))
    path.write_bytes(whole[:-10])
    report = report_of(lambda: open_safetensors(path))
    sizes = f"model.safetensors is {len(whole) - 10} bytes, its header needs {len(whole)}"
    assert report == f"error[C003]: {sizes} (truncated download?)"


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, "size", "size - 7"])
def test_header_length_beyond_the_file(path: Path, length: int | str) -> None:
    """Case A5."""
    whole = assemble(header_of(TENSORS), data_of(TENSORS))
    length = {"size": len(whole), "size - 7": len(whole) - 7}.get(str(length), length)
    path.write_bytes(int(length).to_bytes(8, "little") + whole[8:])
    report = report_of(lambda: open_safetensors(path))
    assert report == f"error[C004]: header length {length} exceeds file size {len(whole)} (model.safetensors)"


def test_header_length_above_the_format_s_limit(path: Path) -> None:
    with path.open("wb") as stream:
        stream.write((100_000_001).to_bytes(8, "little"))
        stream.truncate(200_000_000)
    assert codes_of(lambda: open_safetensors(path)) == ["C004"]


@pytest.mark.parametrize("length", [0, 1])
def test_header_length_too_short(path: Path, length: int) -> None:
    path.write_bytes(length.to_bytes(8, "little") + b"{}" + b"\0" * 100)
    assert codes_of(lambda: open_safetensors(path)) == ["C004"]


ENTRY = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
HEADERS = {
    "not json": b"{]",
    "not utf-8": b'{"\xff": 1}',
    "list": b"[]",
    "duplicate key": f'{{"a":{ENTRY},"a":{ENTRY}}}'.encode(),
    "duplicate field": b'{"a":{"dtype":"F32","shape":[1],"shape":[2],"data_offsets":[0,4]}}',
    "nested": b'{"a":' + b"[" * 200_000,
    "no dtype": b'{"a":{"shape":[1],"data_offsets":[0,4]}}',
    "dtype number": b'{"a":{"dtype":1,"shape":[1],"data_offsets":[0,4]}}',
    "negative dim": b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}',
    "float dim": b'{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}',
    "boolean dim": b'{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}}',
    "one offset": b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}}',
    "entry a list": b'{"a":[]}',
    "name without end": f'{{"{"a" * 600}":{ENTRY}}}'.encode(),
    "name with escape": f'{{"a\\u001b[31m":{ENTRY}}}'.encode(),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_header_that_is_malformed(path: Path, header: bytes) -> None:
    """Case A5: no JSON, duplicate keys."""
    path.write_bytes(assemble(header, b"\0\0\0\0"))
    report = report_of(lambda: open_safetensors(path))
    assert report.startswith("error[C005]") and "\x1b" not in report and len(report) < 500


def _offsets(name: str, begin: int, end: int) -> Callable[[Header], object]:
    return lambda header: header[name].update(data_offsets=[begin, end])


LAYOUTS = {
    "overlap": _edited(_offsets("b", 20, 30)),
    "same place": _edited(_offsets("b", 0, 24)),
    "hole": _edited(lambda header: header.pop("b")),
    "hole at the start": _edited(lambda header: header.pop("a")),
    "reversed": _edited(_offsets("b", 34, 24)),
    "too wide for its shape": _edited(lambda header: header["a"].update(shape=[2, 2])),
    "too narrow for its shape": _edited(lambda header: header["a"].update(shape=[2, 4])),
    "shape overflows": _edited(lambda header: header["a"].update(shape=[1 << 40, 1 << 40])),
    "other type": _edited(lambda header: header["a"].update(dtype="F64")),
}


@pytest.mark.parametrize("data", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_that_does_not_fit(path: Path, data: bytes) -> None:
    """Case A4: overlap, hole, out of range."""
    path.write_bytes(data)
    assert set(codes_of(lambda: open_safetensors(path))) == {"C006"}


def test_trailing_bytes(path: Path) -> None:
    """Case A4."""
    path.write_bytes(assemble(header_of(TENSORS), data_of(TENSORS) + b"1234567"))
    report = report_of(lambda: open_safetensors(path))
    assert report == (
        "error[C007]: 7 bytes follow the last tensor (model.safetensors). "
        "If they are meant to be there, pass --allow-trailing"
    )
    found = open_safetensors(path, allow_trailing=True)
    assert all(np.array_equal(found[name].read(), values) for name, values in TENSORS.items())


@pytest.mark.parametrize(("dtype", "width"), [("F8_E4M3", 4), ("F8_E5M2", 4), ("U32", 1), ("I16", 2), ("F4", 8)])
def test_types_that_no_weight_has(path: Path, dtype: str, width: int) -> None:
    """Case A22: eight bits and less are no weights without their scales."""
    path.write_bytes(_edited(lambda header: header["a"].update(dtype=dtype, shape=[6, width])))
    report = report_of(lambda: open_safetensors(path))
    assert report.startswith(f"error[C008]: 'a' has element type {dtype}")


def test_all_faults_of_a_kind_are_reported(path: Path) -> None:
    path.write_bytes(_edited(lambda header: [header[name].update(dtype="F8_E4M3") for name in header]))
    assert codes_of(lambda: open_safetensors(path)) == ["C006"] * 3


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 400), byte=st.integers(0, 255), cut=st.integers(0, 40))
def test_any_damage_is_an_error_of_ours_or_harmless(path: Path, place: int, byte: int, cut: int) -> None:
    data = bytearray(assemble(header_of(TENSORS), data_of(TENSORS)))
    data[place % len(data)] = byte
    path.write_bytes(data[: len(data) - cut])
    try:
        found = open_safetensors(path)
    except HspecError:
        return
    for source in found.values():
        assert source.read().nbytes == source.nbytes
    # What we accept the format's library accepts too, apart from names it also allows.
    with safetensors.safe_open(path, "numpy") as theirs:
        assert sorted(theirs.keys()) == sorted(found)
