# SPDX-License-Identifier: Apache-2.0
"""The teacher cache: what it keeps, that it resumes, and that it never mixes two targets or texts."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
import torch

from hspec_trt.checkpoint.target import load_target
from hspec_trt.errors import BuildError, DrafterError
from hspec_trt.modeling.load import target_model
from hspec_trt.training import teacher
from hspec_trt.training.cache import TeacherCache
from hspec_trt.training.data import Conversation, read_conversations
from hspec_trt.training.teacher import cache_key, fill_cache
from tests.support.training import TARGET, write_data

HIDDEN, KV = (1, 3), (2, 5)


@pytest.fixture(scope="module")
def model() -> teacher.TargetModel:
    return target_model(load_target(TARGET))


@pytest.fixture
def conversations(tmp_path: Path) -> list[Conversation]:
    return read_conversations(write_data(tmp_path / "d"), vocab_size=256, max_tokens=99)


def _open(
    folder: Path, model: teacher.TargetModel, conversations: list[Conversation], *, all_rows: bool = False
) -> TeacherCache:
    key = cache_key(model, conversations, hidden_layers=HIDDEN, kv_layers=KV, all_rows=all_rows)
    return TeacherCache(folder, key, conversations)


@pytest.mark.parametrize("all_rows", [False, True])
def test_holds_the_states_of_each_conversation(
    tmp_path: Path, model: teacher.TargetModel, conversations: list[Conversation], all_rows: bool
) -> None:
    cache = _open(tmp_path / "c", model, conversations, all_rows=all_rows)
    fill_cache(cache, model)
    assert cache.complete
    for index in (0, 7, len(conversations) - 1):
        tokens = torch.tensor(conversations[index].token_ids)
        with torch.inference_mode():
            wanted = model.prefill([tokens], hidden_layers=HIDDEN, kv_layers=KV)
        found = cache.read(index)
        first = 0 if all_rows else len(conversations[index].prompt_ids) - 1
        assert found.first_row == first
        rows = torch.stack([wanted.hidden[1], wanted.hidden[3], wanted.final], 1)[first:]
        kv = torch.stack([torch.stack([wanted.keys[i], wanted.values[i]], 1) for i in KV], 1)
        torch.testing.assert_close(found.rows.float(), rows, atol=1e-3, rtol=1e-2)
        torch.testing.assert_close(found.kv.float(), kv, atol=1e-3, rtol=1e-2)


def test_goes_on_after_an_interrupt(
    tmp_path: Path, model: teacher.TargetModel, conversations: list[Conversation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher, "PACK_TOKENS", 60)

    def stop(done: int) -> None:
        if done >= 8:
            raise KeyboardInterrupt

    cache = _open(tmp_path / "c", model, conversations)
    with pytest.raises(KeyboardInterrupt):
        fill_cache(cache, model, on_progress=stop)
    done = cache.num_done
    assert 8 <= done < len(conversations)
    again = _open(tmp_path / "c", model, conversations)
    seen: list[int] = []
    fill_cache(again, model, on_progress=seen.append)
    assert seen[0] > done
    whole = _open(tmp_path / "w", model, conversations)
    fill_cache(whole, model)
    for name in ("kv.bin", "rows.bin", "done"):
        assert (tmp_path / "c" / name).read_bytes() == (tmp_path / "w" / name).read_bytes()


@pytest.mark.parametrize("name", ["kv.bin", "rows.bin"])
def test_a_file_that_was_cut_is_made_anew(
    name: str, tmp_path: Path, model: teacher.TargetModel, conversations: list[Conversation]
) -> None:
    fill_cache(_open(tmp_path / "c", model, conversations), model)
    whole = (tmp_path / "c" / name).read_bytes()
    os.truncate(tmp_path / "c" / name, len(whole) // 2)
    again = _open(tmp_path / "c", model, conversations)
    assert again.num_done == 0
    fill_cache(again, model)
    assert (tmp_path / "c" / name).read_bytes() == whole


def test_a_disk_without_room_is_told_before_the_target_runs(
    tmp_path: Path, model: teacher.TargetModel, conversations: list[Conversation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is mapped without its room kills the process where the disk is full."""

    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(BuildError, match="B004"):
        _open(tmp_path / "c", model, conversations)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_a_manifest_that_cannot_be_read_is_refused(
    content: bytes, tmp_path: Path, model: teacher.TargetModel, conversations: list[Conversation]
) -> None:
    _open(tmp_path / "c", model, conversations)
    (tmp_path / "c" / "cache.json").write_bytes(content)
    with pytest.raises(DrafterError, match=r"D201.*cannot be read"):
        _open(tmp_path / "c", model, conversations)


def test_another_text_or_target_is_refused(
    tmp_path: Path, model: teacher.TargetModel, conversations: list[Conversation]
) -> None:
    _open(tmp_path / "c", model, conversations)
    random.Random(0).shuffle(conversations)
    with pytest.raises(DrafterError, match="another data") as caught:
        _open(tmp_path / "c", model, conversations)
    assert caught.value.code == "D201"
    name = "model.layers.5.mlp.down_proj.weight"
    changed = teacher.TargetModel(model.config, model.weights | {name: model.weights[name] * 2})
    with pytest.raises(DrafterError, match="another data, target"):
        _open(tmp_path / "c", changed, conversations)
