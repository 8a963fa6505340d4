# SPDX-License-Identifier: Apache-2.0
"""Damaged GGUF files are refused by their headers, with the byte where the damage is."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hspec_trt.checkpoint.gguf_file import open_gguf
from hspec_trt.checkpoint.target import load_target
from hspec_trt.errors import HspecError
from tests.support.faults import codes_of, report_of
from tests.support.tiny_gguf import write_gguf
from tests.support.tiny_models import TinyTarget

SMALL = TinyTarget(num_layers=1, vocab_size=20)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", SMALL).read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tiny.gguf"


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _value(key: str, kind: int, data: bytes) -> bytes:
    return _text(key) + struct.pack("<I", kind) + data


def _tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def _file(values: list[bytes], tensors: list[bytes], data: bytes = b"", *, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + b"".join(values + tensors)
    return head + b"\0" * (-len(head) % 32) + data


def test_built_by_hand(path: Path) -> None:
    values = [
        _value("a", 4, struct.pack("<I", 7)),
        _value("b", 8, _text("é")),
        _value("c", 9, struct.pack("<IQ3h", 3, 3, -1, 0, 5)),
        _value("d", 7, b"\1"),
        _value("e", 6, struct.pack("<f", 1e-5)),
        _value("f", 9, struct.pack("<IQ", 8, 2) + _text("x") + _text("")),
    ]
    path.write_bytes(_file(values, [_tensor("t", (3, 2))], struct.pack("<6f", *range(6))))
    file = open_gguf(path)
    assert file.metadata == {"a": 7, "b": "é", "c": [-1, 0, 5], "d": True, "e": 1e-5, "f": ["x", ""]}
    tensor = file.tensors["t"]
    stored = file.mapped[tensor.offset : tensor.offset + tensor.nbytes]
    assert tensor.kind.decode(stored, tensor.shape).tolist() == [[0, 1, 2], [3, 4, 5]]


STARTS = {
    "not gguf": (b"\x80\x02}q" + bytes(40), "C014", "the file begins with b'\\x80\\x02}q'; needed: b'GGUF'"),
    "version 1": (b"GGUF" + struct.pack("<I", 1) + bytes(40), "C014", "GGUF version 1; needed: version 2 or 3"),
    "version 4": (b"GGUF" + struct.pack("<I", 4) + bytes(40), "C014", "GGUF version 4"),
    "version 0": (b"GGUF" + bytes(40), "C014", "GGUF version 0"),
    "big-endian": (b"GGUF" + struct.pack(">I", 3) + bytes(40), "C014", "the file is big-endian"),
    "empty": (b"", "C003", "tiny.gguf is 0 bytes"),
    "nothing but magic": (b"GGUF", "C003", "tiny.gguf is 4 bytes"),
}


@pytest.mark.parametrize(("data", "code", "text"), STARTS.values(), ids=STARTS)
def test_start_of_the_file(path: Path, data: bytes, code: str, text: str) -> None:
    path.write_bytes(data)
    report = report_of(lambda: load_target(path))
    assert report.startswith(f"error[{code}]") and text in report


def test_version_2_is_read(path: Path) -> None:
    path.write_bytes(_file([], [], version=2))
    assert open_gguf(path).tensors == {}


ONE = struct.pack("<f", 1.0) * 64
DAMAGED: dict[str, tuple[bytes, str, str]] = {
    "key twice": (_file([_value("a", 7, b"\1")] * 2, []), "C015", "key 'a' is there twice"),
    "unknown value type": (_file([_value("a", 13, bytes(8))], []), "C015", "unknown type 13"),
    "array of arrays": (_file([_value("a", 9, struct.pack("<IQ", 9, 1))], []), "C015", "unknown type 9"),
    "endless array": (_file([_value("a", 9, struct.pack("<IQ", 0, 1 << 60))], []), "C015", "more than 2097152"),
    "endless string": (_file([_value("a", 8, struct.pack("<Q", 1 << 60))], []), "C015", "do not fit"),
    "string that is not utf-8": (_file([_value("a", 8, struct.pack("<Q", 1) + b"\xff")], []), "C015", "not UTF-8"),
    "no dims": (_file([], [_tensor("t", ())]), "C015", "'t' has 0 dims"),
    "five dims": (_file([], [_tensor("t", (1,) * 5)]), "C015", "'t' has 5 dims"),
    "name with escape": (_file([], [_tensor("t\x1b", (1,))]), "C015", "tensor name 't\\x1b'"),
    "name without end": (_file([], [_tensor("t" * 600, (1,))]), "C015", "tensor name 'ttt"),
    "tensor twice": (_file([], [_tensor("t", (1,))] * 2, ONE), "C023", "tensor 't' is there twice"),
    "type gone": (_file([], [_tensor("t", (32,), 4)], ONE), "C017", "'t' has the type number 4"),
    "type unknown": (_file([], [_tensor("t", (32,), 999)], ONE), "C017", "'t' has the type number 999"),
    "type of integers": (_file([], [_tensor("t", (32,), 24)], ONE), "C017", "'t' has the type I8"),
    "half a block": (_file([], [_tensor("t", (16,), 8)], ONE), "C015", "rows of 16 elements, Q8_0 has 32"),
    "beyond the end": (_file([], [_tensor("t", (64,), 0, 32)], ONE), "C015", "its header needs"),
    "offset 2^63": (_file([], [_tensor("t", (1,), 0, 1 << 63)], ONE), "C015", "truncated download?"),
    "product overflows": (_file([], [_tensor("t", (1 << 33, 1 << 33), 0)], ONE), "C015", "truncated download?"),
    "overlap": (_file([], [_tensor("t", (16,)), _tensor("u", (16,), 0, 32)], ONE), "C015", "'u' overlaps"),
    "not aligned": (_file([], [_tensor("t", (1,), 0, 4)], ONE), "C015", "not aligned"),
    "alignment 0": (_file([_value("general.alignment", 4, bytes(4))], []), "C015", "general.alignment is 0"),
    "alignment 3": (_file([_value("general.alignment", 4, struct.pack("<I", 3))], []), "C015", "alignment is 3"),
    "alignment text": (_file([_value("general.alignment", 8, _text("x"))], []), "C015", "alignment is 'x'"),
    "no architecture": (_file([], []), "C019", "metadata general.architecture is missing"),
}


@pytest.mark.parametrize(("data", "code", "text"), DAMAGED.values(), ids=DAMAGED)
def test_damage_is_named(path: Path, data: bytes, code: str, text: str) -> None:
    path.write_bytes(data)
    report = report_of(lambda: load_target(path))
    assert report.startswith(f"error[{code}]") and text in report and "tiny.gguf" in report
    assert "\x1b" not in report


def test_every_truncation_is_noticed(path: Path, sound: bytes) -> None:
    for kept in {*range(0, len(sound) - 1, 997), *range(64), len(sound) - 1}:
        path.write_bytes(sound[:kept])
        assert codes_of(lambda: open_gguf(path))[0] in ("C003", "C015"), kept


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 4000), byte=st.integers(0, 255))
def test_any_damage_is_an_error_of_ours_or_harmless(path: Path, sound: bytes, place: int, byte: int) -> None:
    data = bytearray(sound)
    data[place] = byte
    path.write_bytes(data)
    try:
        opened = load_target(path)
    except HspecError:
        return
    for source in opened.tensors.values():
        assert source.read().shape == source.shape
