# SPDX-License-Identifier: Apache-2.0
"""Only files of the checkpoint folder are ever opened."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from hspec_trt.checkpoint.files import CheckpointFolder, leaves_folder
from hspec_trt.checkpoint.shown import printable
from hspec_trt.checkpoint.target import load_target
from tests.support.faults import codes_of, report_of
from tests.support.tiny_models import write_json

INDEX = "model.safetensors.index.json"
SECOND = "model-00002-of-00002.safetensors"


def _point_index(folder: Path, shard: str) -> str:
    """Let the index name another file for the last tensor; returns that tensor's name."""
    index = json.loads((folder / INDEX).read_text())
    name = list(index["weight_map"])[-1]
    index["weight_map"][name] = shard
    write_json(folder / INDEX, index)
    return name


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every path that is opened or mapped, resolved."""
    seen: list[Path] = []
    path_open, memmap = Path.open, np.memmap

    def note_open(self: Path, *args: object, **kwargs: object) -> object:
        seen.append(self.resolve())
        return path_open(self, *args, **kwargs)

    def note_map(path: Path, *args: object, **kwargs: object) -> object:
        seen.append(Path(path).resolve())
        return memmap(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", note_open)
    monkeypatch.setattr(np, "memmap", note_map)
    return seen


@pytest.mark.parametrize(
    "shard", ["../other/x.safetensors", "{absolute}", "a/../../other/x.safetensors", "a\\..\\x", ""]
)
def test_index_that_leaves_the_folder(sharded: Path, opened: list[Path], shard: str) -> None:
    """Case A1."""
    outside = sharded.parent / "other" / "x.safetensors"
    outside.parent.mkdir()
    shutil.copy(sharded / SECOND, outside)
    shard = shard.format(absolute=outside)
    name = _point_index(sharded, shard)
    report = report_of(lambda: load_target(sharded))
    assert report.startswith("error[C001]") and name in report and repr(shard) in report
    assert all(path.is_relative_to(sharded) for path in opened) and opened


def test_link_out_of_the_folder(sharded: Path, opened: list[Path]) -> None:
    """Case A1, by a symbolic link."""
    outside = sharded.parent / "x.safetensors"
    shutil.move(sharded / SECOND, outside)
    (sharded / SECOND).symlink_to(outside)
    report = report_of(lambda: load_target(sharded))
    assert report.startswith("error[C001]") and SECOND in report and str(outside) in report
    assert outside not in opened


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_no_file_may_be_a_link_outside(folder: Path, opened: list[Path], name: str) -> None:
    outside = folder.parent / name
    shutil.move(folder / name, outside)
    (folder / name).symlink_to(outside)
    assert codes_of(lambda: load_target(folder)) == ["C001"]
    assert outside not in opened


def test_link_inside_the_folder(folder: Path) -> None:
    (folder / "blob").mkdir()
    shutil.move(folder / "model.safetensors", folder / "blob" / "weights")
    (folder / "model.safetensors").symlink_to("blob/weights")
    assert len(load_target(folder).tensors) == 39


def test_hugging_face_cache(sharded: Path) -> None:
    cache = sharded.parent / "models--a--b"
    snapshot, blobs = cache / "snapshots" / "0123abc", cache / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(sharded.iterdir())):
        shutil.copy(file, blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    opened = load_target(snapshot)
    assert len(opened.tensors) == 39 and opened.config.name == "a/b"
    link = sharded.parent / "link"
    link.symlink_to(snapshot)
    assert len(load_target(link).tensors) == 39


def test_blobs_are_allowed_in_a_cache_only(sharded: Path) -> None:
    other = sharded.parent.parent / "blobs"
    other.mkdir(exist_ok=True)
    shutil.move(sharded / SECOND, other / "0")
    (sharded / SECOND).symlink_to(other / "0")
    assert codes_of(lambda: load_target(sharded)) == ["C001"]


def test_each_file_is_opened_once(sharded: Path, opened: list[Path]) -> None:
    for source in load_target(sharded).tensors.values():
        source.read()
    assert len(opened) == len(set(opened))
    assert {path.name for path in opened} == {path.name for path in sharded.iterdir()}


def test_what_is_not_a_regular_file(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    assert "is not a regular file" in report_of(lambda: load_target(folder))


def test_broken_link(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("blob-that-was-never-fetched")
    report = report_of(lambda: load_target(folder))
    assert report.startswith("error[C010]") and "model.safetensors does not exist" in report


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    report = report_of(lambda: load_target(folder))
    assert report.startswith("error[C010]") and name in report


def test_missing_folder(tmp_path: Path) -> None:
    assert codes_of(lambda: load_target(tmp_path / "nothing")) == ["C010"]
    assert codes_of(lambda: CheckpointFolder(tmp_path / "nothing")) == ["C010"]


def test_pickle_is_not_loaded(folder: Path, opened: list[Path]) -> None:
    shutil.move(folder / "model.safetensors", folder / "pytorch_model.bin")
    report = report_of(lambda: load_target(folder))
    assert report.startswith("error[C018]") and "pytorch_model.bin" in report
    assert folder / "pytorch_model.bin" not in opened


@pytest.mark.parametrize("name", ["a/b.safetensors", "a.b", "..a", "a..", "model-1.safetensors"])
def test_names_that_stay(name: str) -> None:
    assert not leaves_folder(name)


@pytest.mark.parametrize("name", ["", "..", "a/..", "/a", "C:\\a", "C:a", "\\a", "a\\..\\b", "a\0b", "./../a"])
def test_names_that_leave(name: str) -> None:
    assert leaves_folder(name)


def test_messages_hold_nothing_that_a_terminal_acts_on(sharded: Path) -> None:
    for shard in ("\x1b[31m.safetensors", "../\x1b]0;x", "x" * 5000):
        _point_index(sharded, shard)
        report = report_of(lambda: load_target(sharded))
        assert "\x1b" not in report and len(report) < 6000


@pytest.mark.parametrize(
    ("text", "expected"), [("a\x1b[0m\n", "a?[0m?"), ("é日", "é日"), ("x" * 81, "x" * 77 + "..."), ("x" * 80, "x" * 80)]
)
def test_printable(text: str, expected: str) -> None:
    assert printable(text) == expected
