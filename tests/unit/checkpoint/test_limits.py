# SPDX-License-Identifier: Apache-2.0
"""Silly numbers and hostile headers cost neither memory nor time: a process that has little of both refuses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hspec_trt.checkpoint.target import load_target
from tests.support.limited import load_limited
from tests.support.safetensors_writer import assemble
from tests.support.tiny_gguf import write_gguf
from tests.support.tiny_models import DROP, TinyTarget, edit_config, write_target

HEADER_LIMIT, CONFIG_LIMIT = 256, 512  # mebibytes
SECONDS = 1.0


def _config(**changes: object) -> Callable[[Path], object]:
    return lambda folder: edit_config(folder, **changes)


def _bytes(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def _header(data: bytes) -> Callable[[Path], object]:
    return _bytes("model.safetensors", data)


def _huge_sparse(folder: Path) -> None:
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(assemble({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}, b""))
        stream.truncate(1 << 42)


def _large_index(folder: Path) -> None:
    names = {f"model.layers.{i}.weight": "x.safetensors" for i in range(200_000)}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


CASES: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "layers 10^9": (_config(num_hidden_layers=10**9), "C032", CONFIG_LIMIT),
    "vocabulary 10^12": (_config(vocab_size=10**12), "C032", CONFIG_LIMIT),
    "vocabulary -1": (_config(vocab_size=-1), "C032", CONFIG_LIMIT),
    "positions 2^62": (_config(max_position_embeddings=1 << 62), "C032", CONFIG_LIMIT),
    "heads 0": (_config(num_attention_heads=0), "C032", CONFIG_LIMIT),
    "7 heads of 64 channels": (_config(num_attention_heads=7, head_dim=DROP), "C030", CONFIG_LIMIT),
    "epsilon 0": (_config(rms_norm_eps=0), "C032", CONFIG_LIMIT),
    "epsilon NaN": (_config(rms_norm_eps=float("nan")), "C032", CONFIG_LIMIT),
    "epsilon a string": (_config(rms_norm_eps="1e-5"), "C031", CONFIG_LIMIT),
    "duplicate keys": (_bytes("config.json", b'{"vocab_size": 61, "vocab_size": 62}'), "C011", CONFIG_LIMIT),
    "layers at the bound": (_config(num_hidden_layers=1024), "C020", CONFIG_LIMIT),
    "config of 10 MB nesting": (_bytes("config.json", b"[" * 10_000_000), "C011", CONFIG_LIMIT),
    "config of 10 MB objects": (_bytes("config.json", b'{"a":' * 2_000_000), "C011", CONFIG_LIMIT),
    "generation config of 10 MB": (_bytes("generation_config.json", b"[" * 10_000_000), "C011", CONFIG_LIMIT),
    "header length 2^63": (_header((1 << 63).to_bytes(8, "little") + b"{}" * 100), "C004", HEADER_LIMIT),
    "header length 0": (_header(bytes(8) + b"{}" * 100), "C004", HEADER_LIMIT),
    "header of brackets": (_header(assemble(b"[" * 1_000_000, b"")), "C005", HEADER_LIMIT),
    "header with a tensor of 4 TB": (
        _header(assemble({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}, b"")),
        "C003",
        HEADER_LIMIT,
    ),
    "sparse file of 4 TB": (_huge_sparse, "C010", HEADER_LIMIT),
    "index of 200,000 names": (_large_index, "C010", HEADER_LIMIT),
}


@pytest.mark.parametrize(("damage", "code", "mebibytes"), CASES.values(), ids=CASES)
def test_folder_is_refused_cheaply(folder: Path, damage: Callable[[Path], object], code: str, mebibytes: int) -> None:
    """Cases A5, A13 and A14: exit code 2 within a second, under an address limit."""
    damage(folder)
    outcome = load_limited(folder, mebibytes)
    assert outcome.report.startswith(f"error[{code}]"), outcome.report
    assert outcome.exit_code == 2 and outcome.seconds < SECONDS


COUNTS = {"tensors": 8, "metadata values": 16, "length of the first key": 24}


@pytest.mark.parametrize("place", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("count", [(1 << 64) - 1, 1 << 40, 1 << 24])
def test_gguf_is_refused_cheaply(tmp_path: Path, place: int, count: int) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    data = bytearray(path.read_bytes())
    data[place : place + 8] = count.to_bytes(8, "little")
    path.write_bytes(data)
    outcome = load_limited(path, HEADER_LIMIT)
    assert outcome.report.startswith("error[C015]") and outcome.exit_code == 2 and outcome.seconds < SECONDS


LARGE = TinyTarget(hidden_size=1024, intermediate_size=4096, num_layers=2)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target of 100 MB."""
    return write_target(tmp_path_factory.mktemp("large"), LARGE)


def test_sound_target_needs_no_more_than_its_files(large: Path) -> None:
    mebibytes = (large / "model.safetensors").stat().st_size >> 20
    assert mebibytes > 90
    outcome = load_limited(large, mebibytes + 32)
    assert (outcome.exit_code, outcome.report) == (0, "") and outcome.seconds < SECONDS


def test_file_that_cannot_be_mapped(large: Path) -> None:
    outcome = load_limited(large, 50)
    assert outcome.exit_code == 2 and outcome.report.startswith("error[C010]: cannot map")


def test_opening_reads_no_weights(large: Path) -> None:
    before = _resident_bytes()
    opened = load_target(large)
    grown = _resident_bytes() - before
    size = sum(source.read().nbytes for source in opened.tensors.values())
    assert size > 90 << 20 and grown < 10 << 20


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
