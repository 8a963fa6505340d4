# SPDX-License-Identifier: Apache-2.0
import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hspec_trt.bundle import Manifest, new_folder, open_engine
from hspec_trt.bundle.folder import SAMPLE_BLOCK_BYTES, SAMPLE_BLOCKS
from hspec_trt.bundle.manifest import MANIFEST_FILE
from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.errors import BuildError, HspecError, LoadError
from tests.support.engine_folders import DRAFTER, MANIFEST, write_engine


@pytest.mark.parametrize("drafter", [DRAFTER, None])
def test_manifest_round_trip(drafter: HSpecConfig | None) -> None:
    manifest = replace(MANIFEST, drafter=drafter)
    assert Manifest.from_json(manifest.to_json(), "x") == manifest


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"format_version": 2}, "L004", "format_version is 2; needed: 1"),
        ({"contract_version": None}, "L004", "contract_version is null"),
        ({"surprise": 1}, "L003", "surprise"),
        ({"dtype": 3}, "L003", "dtype"),
        ({"drafter": {"kind": "magic"}}, "L003", "drafter: the kind is not one of hspec"),
        ({"limits": {"max_batch_size": "many"}}, "L003", "limits"),
    ],
)
def test_a_wrong_manifest_is_refused_in_words(change: dict[str, object], code: str, text: str) -> None:
    plain = json.loads(MANIFEST.to_json()) | change
    with pytest.raises(LoadError) as caught:
        Manifest.from_json(json.dumps(plain).encode(), "x/config.json")
    assert caught.value.code == code
    assert text in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"[1]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_manifest_that_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(LoadError, match="L003"):
        Manifest.from_json(text, "x")


def test_what_was_written_opens(tmp_path: Path) -> None:
    write_engine(tmp_path / "e", {"graph.onnx": b"g", "tokenizer.json": b"{}"})
    engine = open_engine(tmp_path / "e", whole=True)
    assert engine.text("tokenizer.json") == b"{}"
    assert engine.text("missing.json") is None
    assert engine.path.stat().st_mode & 0o777 == 0o755  # a server runs as another user
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e"]


def test_an_existing_folder_needs_force_and_survives_a_failed_build(tmp_path: Path) -> None:
    write_engine(tmp_path / "e", {"graph.onnx": b"old"})
    with pytest.raises(BuildError, match="B001"):
        write_engine(tmp_path / "e", {"graph.onnx": b"new"})
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "e", force=True) as folder:
        (folder / "graph.onnx").write_bytes(b"half")
        raise KeyboardInterrupt
    assert open_engine(tmp_path / "e").file("graph.onnx").read_bytes() == b"old"
    write_engine(tmp_path / "e", {"graph.onnx": b"new"}, force=True)
    assert open_engine(tmp_path / "e").file("graph.onnx").read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e"]


def test_a_replacement_that_fails_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_engine(tmp_path / "e", {"graph.onnx": b"old"})
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path.suffix == ".partial":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(BuildError, match=r"B005.*Input/output error"):
        write_engine(tmp_path / "e", {"graph.onnx": b"new"}, force=True)
    assert open_engine(tmp_path / "e").file("graph.onnx").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e"]


@pytest.mark.parametrize(("force", "code"), [(False, "B001"), (True, "B002")])
def test_what_came_to_the_place_meanwhile_stays(force: bool, code: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=code), new_folder(tmp_path / "e", force=force):
        (tmp_path / "e").mkdir()
        (tmp_path / "e" / "letter.txt").write_text("dear")
    assert (tmp_path / "e" / "letter.txt").read_text() == "dear"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e"]


def test_leftovers_go_with_the_next_folder_but_never_one_being_written(tmp_path: Path) -> None:
    abandoned, foreign = tmp_path / ".e.12345678.partial", tmp_path / ".other.e.12345678.partial"
    for leftover in (abandoned, foreign):
        leftover.mkdir()
        (leftover / "graph.onnx").write_bytes(b"half")
    with new_folder(tmp_path / "e", force=True) as slow:
        (slow / "graph.onnx").write_bytes(b"slow")
        assert not abandoned.exists()
        write_engine(tmp_path / "e", {"graph.onnx": b"fast"})
        assert (slow / "graph.onnx").read_bytes() == b"slow"
    assert (tmp_path / "e" / "graph.onnx").read_bytes() == b"slow"
    assert sorted(path.name for path in tmp_path.iterdir()) == [foreign.name, "e"]


def test_force_never_replaces_what_is_not_an_engine(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(BuildError, match="B002"), new_folder(tmp_path / "home", force=True):
        pass
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_no_parent_folder(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="B003"), new_folder(tmp_path / "a" / "b", force=False):
        pass


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="B004"), new_folder(tmp_path / "e", force=False):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_a_really_full_file_system_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="B004"), new_folder(tmp_path / "e", force=False):
        Path("/dev/full").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


def damage(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


def test_changed_missing_and_short_files_are_all_reported(tmp_path: Path) -> None:
    write_engine(tmp_path / "e", {"a": b"aaaa", "b": b"bbbb", "c": b"cccc"})
    damage(tmp_path / "e" / "a", 2)
    (tmp_path / "e" / "b").unlink()
    (tmp_path / "e" / "c").write_bytes(b"c")
    with pytest.raises(HspecError) as caught:
        open_engine(tmp_path / "e")
    assert [fault.code for fault in caught.value.faults] == ["L005"] * 3


def test_large_files_are_sampled_on_load_and_hashed_whole_on_demand(tmp_path: Path) -> None:
    size = 4 * SAMPLE_BLOCKS * SAMPLE_BLOCK_BYTES
    write_engine(tmp_path / "e", {"weights.safetensors": bytes(size)})
    path = tmp_path / "e" / "weights.safetensors"
    damage(path, SAMPLE_BLOCK_BYTES + 5)  # between the first two blocks
    open_engine(tmp_path / "e")
    with pytest.raises(LoadError, match="L005"):
        open_engine(tmp_path / "e", whole=True)
    damage(path, SAMPLE_BLOCK_BYTES + 5)
    damage(path, size - 1)
    with pytest.raises(LoadError, match="L005"):
        open_engine(tmp_path / "e")


def test_a_file_of_another_length_is_told_by_its_length(tmp_path: Path) -> None:
    """Zeros more or less leave every sampled block as it was."""
    size = 2 * SAMPLE_BLOCKS * SAMPLE_BLOCK_BYTES
    write_engine(tmp_path / "e", {"weights.safetensors": bytes(size)})
    for wrong in (size - 1, size + 1):
        os.truncate(tmp_path / "e" / "weights.safetensors", wrong)
        with pytest.raises(LoadError, match=f"has {wrong} bytes; needed: {size}"):
            open_engine(tmp_path / "e")


@pytest.mark.parametrize("name", ["../outside", "{}/outside", "inner/b", "..", ".", "a\0b"])
def test_a_manifest_cannot_name_files_elsewhere(name: str, tmp_path: Path) -> None:
    write_engine(tmp_path / "e", {"a": b"aaaa"})
    (tmp_path / "e" / "inner").mkdir()
    for place in (tmp_path / "outside", tmp_path / "e" / "inner" / "b"):
        place.write_bytes(b"aaaa")
    plain = json.loads((tmp_path / "e" / MANIFEST_FILE).read_bytes())
    plain["files"] = {name.format(tmp_path): plain["files"]["a"]}
    (tmp_path / "e" / MANIFEST_FILE).write_text(json.dumps(plain))
    with pytest.raises(LoadError, match="plain file names"):
        open_engine(tmp_path / "e")


def test_no_folder_and_no_manifest(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(LoadError, match="L007"):
            open_engine(path)
