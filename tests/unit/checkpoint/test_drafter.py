# SPDX-License-Identifier: Apache-2.0
"""The door to drafters: which format, which files, tokenizer, mask row, types, and reports that hold everything."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from hspec_trt.checkpoint.drafter import load_drafter, position_warning
from hspec_trt.checkpoint.safetensors_file import open_safetensors
from hspec_trt.checkpoint.target import TargetCheckpoint
from hspec_trt.checkpoint.tensors import TensorSource
from hspec_trt.checkpoint.tokenizer_match import check_same_tokens
from hspec_trt.errors import DrafterError
from tests.support.edited_drafter import DROP, codes, golden_target, opened, report, write_drafter
from tests.support.golden import GOLDEN
from tests.support.golden_drafters import ArrayTensor
from tests.support.safetensors_writer import write_safetensors

CASES = (
    *("hspec_qwen3", "hspec_llama", "hspec_fullattn", "hspec_nokv", "hspec_noseed"),
    *("dflash_qwen3", "dspark_qwen3", "peagle_qwen3"),
)


@pytest.mark.parametrize("case", CASES)
def test_the_model_type_alone_selects_the_format(tmp_path: Path, case: str) -> None:
    """`architectures` carries no information: any value, or none."""
    folder = write_drafter(tmp_path / "d", case, architectures=["Whatever"], auto_map=DROP)
    drafter = opened(folder, case)
    assert drafter.config.kind == case.split("_")[0]
    assert drafter.warnings == ()
    folder = write_drafter(tmp_path / "e", case, architectures=DROP)
    assert opened(folder, case).config == drafter.config


def test_unknown_or_contradicted_formats(tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "d")
    assert opened(folder, format="hspec").config.kind == "hspec"
    assert "--drafter-format dflash given, but config.json says 'mamba_attn_hybrid'. Use hspec" in report(
        folder, format="dflash"
    )
    assert "needed: hspec, dspark" in report(folder, format="medusa")
    assert codes(write_drafter(tmp_path / "m", speculators_model_type="medusa")) == ["D001"]
    assert "mamba_attn_hybrid (hspec)" in report(write_drafter(tmp_path / "m", speculators_model_type=3))
    bare = write_drafter(tmp_path / "b", speculators_model_type=DROP)
    assert "nothing else tells the drafter" in report(bare) or codes(bare)
    assert codes(bare, format="hspec") == ["D001"]


def test_damaged_config(tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "d")
    for text in ("", "[]", "{", '{"a": 1, "a": 2}'):
        (folder / "config.json").write_text(text)
        assert codes(folder) == ["C011"]
    (folder / "config.json").unlink()
    assert codes(folder) == ["C010"]
    assert codes(tmp_path / "nowhere") == ["C010"]


def test_damaged_weights(tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "d")
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])
    assert codes(folder) == ["C003"]
    (folder / "model.safetensors").write_bytes(data + b"1234567")
    assert codes(folder) == ["C007"]
    assert load_drafter(folder, golden_target(), allow_trailing=True).config.kind == "hspec"
    (folder / "model.safetensors").unlink()
    assert codes(folder) == ["C010"]


def test_everything_that_does_not_fit_is_one_report(tmp_path: Path) -> None:
    """A drafter of another target: sizes, rotation, layers."""
    text = report(GOLDEN / "hspec_qwen3" / "drafter", "hspec_fullattn")
    assert "drafter hidden_size 64, target 32" in text
    assert "drafter rope is rope_type default" in text
    assert "attn_kv_layer_ids: 5 is out of range for a 5-layer target" in text
    assert len(text.splitlines()) >= 4
    other = write_drafter(
        tmp_path / "d",
        transformer_layer_config__vocab_size=200,
        transformer_layer_config__num_key_value_heads=1,
        transformer_layer_config__head_dim=8,
        mask_token_id=-1,
    )
    assert {"D113", "D114", "D122"} <= set(codes(other))


def test_missing_and_unused_weights(tmp_path: Path) -> None:
    """Case A7, of a drafter."""
    odd = {"layers.0.ssm.D": DROP, "layers.1.mlp.up_proj.weight": DROP, "layers.1.mlp.up.weight": np.zeros((128, 64))}
    text = report(write_drafter(tmp_path / "d", tensors=odd))  # type: ignore[arg-type]
    assert "2 weights have no source: layers.0.ssm.D, layers.1.mlp.up_proj.weight" in text
    assert "1 checkpoint tensor unused: layers.1.mlp.up.weight" in text
    wrong = {"layers.0.ssm.A_log": np.zeros(5, np.float32), "norm.weight": np.zeros(64, np.int64)}
    assert codes(write_drafter(tmp_path / "e", tensors=wrong)) == ["C022", "C025"]


def test_weight_types(tmp_path: Path) -> None:
    """Case A22: float kinds may mix, which is told; a map of ids must be whole numbers, a weight must not."""
    norm = np.ones(64, np.float16)
    drafter = opened(write_drafter(tmp_path / "d", tensors={"norm.weight": norm}))
    assert any("several types" in note and "1 float16" in note for note in drafter.notes)
    for number, dtype in enumerate((np.float32, ml_dtypes.bfloat16)):
        d2t = _stored("d2t").astype(dtype)
        assert codes(write_drafter(tmp_path / f"e{number}", tensors={"d2t": d2t})) == ["D112"]
    whole = _stored("norm.weight").astype(np.int64)
    assert codes(write_drafter(tmp_path / "f", tensors={"norm.weight": whole})) == ["C025"]


def test_the_vocabulary_must_be_stated(tmp_path: Path) -> None:
    """Case A16: a drafter whose configuration does not say for how many tokens it was trained, or says 0."""
    unknown = write_drafter(tmp_path / "d", transformer_layer_config__vocab_size=DROP)
    assert codes(unknown)[0] == "C033"
    assert codes(write_drafter(tmp_path / "e", transformer_layer_config__vocab_size=0))[0] == "C032"


def test_fusion_width(tmp_path: Path) -> None:
    """Case A11: one wrong tensor; the configuration that is wrong is in test_drafter_hspec."""
    fc = _stored("fc.weight")[:, :128].copy()
    text = report(write_drafter(tmp_path / "d", tensors={"fc.weight": fc}))
    assert "fc.weight expects 2 fused states (128 = 2 x 64), the layer ids give 3: [1, 3, 5]" in text
    assert "error[D102]" in text


def _stored(name: str) -> np.ndarray:
    return opened(GOLDEN / "hspec_qwen3" / "drafter").tensors[name].read()


def test_tables_may_be_the_targets(tmp_path: Path) -> None:
    """Presence decides, not shape; the build is told which."""
    own = opened(write_drafter(tmp_path / "own"))
    assert "drafter lm_head: own (96 rows) via d2t offsets" in own.notes
    shared = opened(
        write_drafter(tmp_path / "d", tensors={"embed_tokens.weight": DROP, "lm_head.weight": DROP})  # type: ignore[dict-item]
    )
    assert {"embed_tokens.weight", "lm_head.weight"}.isdisjoint(shared.tensors)
    assert set(own.tensors) - set(shared.tensors) == {"embed_tokens.weight", "lm_head.weight"}
    assert "drafter lm_head: the target's via d2t offsets" in shared.notes


def test_no_vocabulary_map(tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "d", tensors={"d2t": DROP, "t2d": DROP})  # type: ignore[dict-item]
    assert codes(folder) == ["D110"]


def test_dead_mask_row(tmp_path: Path) -> None:
    table = _stored("embed_tokens.weight").copy()
    table[255] = 0.0
    own = opened(write_drafter(tmp_path / "d", tensors={"embed_tokens.weight": table}))
    assert [line for line in own.warnings if "D121" in line] == [
        "warning[D121] embedding row 255 (mask) has norm 0.0e+00"
    ]
    folder = write_drafter(tmp_path / "e", tensors={"embed_tokens.weight": DROP})  # type: ignore[dict-item]
    target = golden_target()
    tensors: dict[str, TensorSource] = dict(target.tensors)
    tensors["model.embed_tokens.weight"] = ArrayTensor("model.embed_tokens.weight", table)
    shared = load_drafter(folder, replace(target, tensors=tensors))
    assert any("target embedding row 255 (mask)" in line for line in shared.warnings)
    assert load_drafter(folder, target).warnings == ()


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('a pickle was loaded')",)


def test_no_pickle_is_ever_opened(tmp_path: Path) -> None:
    """A mask vector in one would be missed, so it is refused."""
    folder = write_drafter(tmp_path / "d")
    (folder / "training_args.bin").write_bytes(pickle.dumps(_Bomb()))
    assert opened(folder).warnings == ("warning[D128] training_args.bin is a pickle and stays unread",)
    (folder / "mask_embedding.pt").write_bytes(pickle.dumps(_Bomb()))
    assert codes(folder) == ["D123"]
    assert "mask_embedding.pt, which is never loaded" in report(folder)


MASK_FILE = "mask_embedding.safetensors"


def test_mask_vector_in_a_file_of_its_own(tmp_path: Path) -> None:
    """Case B8: the fix that a pickled vector is refused with is one that works, beside the pickle too."""
    folder = write_drafter(tmp_path / "d", "dflash_qwen3")
    (folder / "mask_embedding.pt").write_bytes(pickle.dumps(_Bomb()))
    assert codes(folder, "dflash_qwen3") == ["D123"]
    assert f"Save its tensor as {MASK_FILE}" in report(folder, "dflash_qwen3")
    vector = np.arange(48, dtype=np.float32)
    write_safetensors(folder / MASK_FILE, {"any_name": vector[None]})
    drafter = opened(folder, "dflash_qwen3")
    assert drafter.tensors["mask_embedding"].read().tolist() == vector.tolist()
    assert drafter.config.mask_embedding  # type: ignore[attr-defined]
    assert "mask slots: the vector mask_embedding" in drafter.notes
    assert drafter.warnings == ("warning[D128] mask_embedding.pt is a pickle and stays unread",)


def test_mask_file_that_is_not_clear(tmp_path: Path) -> None:
    vector = np.zeros(48, np.float32)
    folder = write_drafter(tmp_path / "two", "dflash_qwen3", tensors={"mask_embedding": vector})
    write_safetensors(folder / MASK_FILE, {"mask_embedding": vector})
    assert codes(folder, "dflash_qwen3") == ["D123"]
    folder = write_drafter(tmp_path / "pair", "dflash_qwen3")
    write_safetensors(folder / MASK_FILE, {"a": vector, "b": vector})
    assert codes(folder, "dflash_qwen3") == ["D123"]
    write_safetensors(folder / MASK_FILE, {"a": vector[:-1]})
    assert codes(folder, "dflash_qwen3") == ["C022"]
    (folder / MASK_FILE).write_bytes(b"not safetensors")
    assert "C0" in codes(folder, "dflash_qwen3")[0]
    folder = write_drafter(tmp_path / "hspec")
    write_safetensors(folder / MASK_FILE, {"mask_embedding": np.zeros(64, np.float32)})
    assert "1 checkpoint tensor unused: mask_embedding" in report(folder)


def test_mask_file_that_the_index_names(tmp_path: Path) -> None:
    """It is a shard like any other."""
    folder = write_drafter(tmp_path / "d", "dflash_qwen3")
    (folder / "model.safetensors").rename(folder / "first.safetensors")
    write_safetensors(folder / MASK_FILE, {"mask_embedding": np.ones(48, np.float32)})
    first = dict.fromkeys(open_safetensors(folder / "first.safetensors"), "first.safetensors")
    index = {"weight_map": {**first, "mask_embedding": MASK_FILE}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert opened(folder, "dflash_qwen3").config.mask_embedding  # type: ignore[attr-defined]


def _tokenizer(*tokens: str, **added: int) -> bytes:
    vocab = {token: place for place, token in enumerate(tokens)}
    extra = [{"id": place, "content": token} for token, place in added.items()]
    return json.dumps({"model": {"type": "BPE", "vocab": vocab}, "added_tokens": extra}).encode()


def _with_tokenizer(target: TargetCheckpoint, data: bytes) -> TargetCheckpoint:
    return replace(target, text_files={**target.text_files, "tokenizer.json": data})


def test_tokenizers_are_compared_token_by_token(tmp_path: Path) -> None:
    """Case A17."""
    folder = write_drafter(tmp_path / "d")
    target = _with_tokenizer(golden_target(), _tokenizer("a", "b", "c"))
    assert load_drafter(folder, target).config.kind == "hspec"
    (folder / "tokenizer.json").write_bytes(_tokenizer("a", "b", "c", mask=3))
    assert "tokenizer.json" in load_drafter(folder, target).text_files
    (folder / "tokenizer.json").write_bytes(_tokenizer("a", "c", "b"))
    with pytest.raises(DrafterError, match="differ at id 1: target 'b', drafter 'c'") as caught:
        load_drafter(folder, target)
    assert caught.value.code == "D111"
    assert load_drafter(folder, target, allow_other_tokenizer=True).config.kind == "hspec"


def test_tokenizer_kinds() -> None:
    pairs = json.dumps({"model": {"type": "Unigram", "vocab": [["a", -1.0], ["b", -2.0]]}}).encode()
    check_same_tokens(pairs, _tokenizer("a", "b"))
    with pytest.raises(DrafterError, match="id 1"):
        check_same_tokens(pairs, _tokenizer("a", "x"))
    with pytest.raises(DrafterError, match="id 0"):
        check_same_tokens(_tokenizer("a", special=0), _tokenizer("a"))


def test_position_limits(tmp_path: Path) -> None:
    drafter = opened(write_drafter(tmp_path / "d"))
    assert position_warning(drafter.config, 512) is None
    line = position_warning(drafter.config, 8192)
    assert line is not None and "drafting stops at 512" in line
    short = opened(write_drafter(tmp_path / "e", transformer_layer_config__max_position_embeddings=32))
    assert any("D140" in line and "32 positions" in line for line in short.warnings)
    assert short.config.max_position == 32
