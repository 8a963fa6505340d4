# SPDX-License-Identifier: Apache-2.0
import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hspec_trt.bundle import Manifest, new_folder, open_engine, record_file
from hspec_trt.bundle.folder import SAMPLE_BLOCK_BYTES, SAMPLE_BLOCKS
from hspec_trt.bundle.manifest import MANIFEST_FILE
from hspec_trt.config.build import EngineLimits
from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.config.rope import RopeConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.errors import BuildError, HspecError, LoadError

TARGET = TargetConfig(
    family="llama",
    vocab_size=61,
    embedding_rows=64,
    hidden_size=64,
    intermediate_size=128,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope=RopeConfig(rope_type="llama3", factor=8.0, original_max_position=32),
    max_position=256,
    eos_token_ids=(2, 3),
)
DRAFTER = HSpecConfig(
    kind="hspec",
    vocab_size=61,
    draft_vocab_size=40,
    hidden_size=64,
    intermediate_size=128,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope=RopeConfig(),
    block_size=8,
    num_drafts=7,
    mask_token_id=60,
    fused_layers=(1, 3),
    max_position=256,
    block_pattern=("mamba", "attention", "mlp"),
    attn_kv_layers=(2,),
    attn_windows=(12,),
)
MANIFEST = Manifest(
    backend="onnxruntime",
    dtype="float32",
    target=TARGET,
    drafter=DRAFTER,
    limits=EngineLimits(4, 128, 64, 16, 7),
    ops=("PagedAttention",),
    artifacts=(),
    files={},
    notes=("lm_head: taken from the target",),
)


def write_engine(output: Path, files: dict[str, bytes], *, force: bool = False) -> None:
    with new_folder(output, force=force) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        records = {name: record_file(folder / name) for name in files}
        (folder / MANIFEST_FILE).write_bytes(replace(MANIFEST, files=records).to_json())


@pytest.mark.parametrize("drafter", [DRAFTER, None])
def test_manifest_round_trip(drafter: HSpecConfig | None) -> None:
    manifest = replace(MANIFEST, drafter=drafter)
    assert Manifest.from_json(manifest.to_json(), "x") == manifest


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"format_version": 2}, "L004", "format_version is 2; needed: 1"),
        ({"contract_version": None}, "L004", "contract_version is None"),
        ({"surprise": 1}, "L003", "surprise"),
        ({"dtype": 3}, "L003", "dtype"),
        ({"drafter": {"kind": "magic"}}, "L003", "magic"),
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


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    write_engine(tmp_path / "e", {"a": b"aaaa"})
    (tmp_path / "outside").write_bytes(b"secret")
    plain = json.loads((tmp_path / "e" / MANIFEST_FILE).read_bytes())
    plain["files"] = {"../outside": plain["files"]["a"]}
    (tmp_path / "e" / MANIFEST_FILE).write_text(json.dumps(plain))
    with pytest.raises(LoadError, match="plain file names"):
        open_engine(tmp_path / "e")


def test_no_folder_and_no_manifest(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(LoadError, match="L007"):
            open_engine(path)
