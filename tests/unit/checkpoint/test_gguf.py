# SPDX-License-Identifier: Apache-2.0
"""Targets in GGUF: values, row order of q and k, configuration, rope scaling."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hspec_trt.checkpoint.gguf_types import PLAIN, QUANTISED, block_type
from hspec_trt.checkpoint.target import load_target
from hspec_trt.config.rope import RopeConfig
from hspec_trt.errors import CheckpointError
from tests.support.tiny_gguf import as_stored, write_gguf
from tests.support.tiny_models import ROPES, TinyTarget, random_weights, write_target

TARGETS = {
    "llama": TinyTarget(),
    "llama-tied": TinyTarget(tied=True),
    "llama-biases": TinyTarget(attention_bias=True, mlp_bias=True, num_heads=6, num_kv_heads=3),
    "qwen3": TinyTarget(family="qwen3"),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_gguf_and_folder_are_the_same_target(tmp_path: Path, target: TinyTarget) -> None:
    weights = random_weights(target)
    stored = load_target(write_gguf(tmp_path / "tiny.gguf", target, weights))
    folder = load_target(write_target(tmp_path / "tiny", target, weights))
    assert stored.config == folder.config
    assert list(stored.tensors) == list(folder.tensors)
    for name, source in stored.tensors.items():
        np.testing.assert_array_equal(source.read(), weights[name], err_msg=name)
        assert (source.name, source.shape) == (name, weights[name].shape)


@pytest.mark.parametrize("quant", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_values_are_decoded(tmp_path: Path, quant: str) -> None:
    weights = random_weights(TinyTarget())
    opened = load_target(write_gguf(tmp_path / "tiny.gguf", weights=weights, quant=quant))
    for name in ("model.embed_tokens.weight", "model.layers.3.mlp.down_proj.weight", "lm_head.weight"):
        values = opened.tensors[name].read()
        assert values.dtype == opened.tensors[name].dtype.numpy
        np.testing.assert_array_equal(values, as_stored(weights[name], quant), err_msg=name)
        for row in (0, 17, len(values) - 1):
            np.testing.assert_array_equal(opened.tensors[name].read_row(row), values[row], err_msg=name)
    query = opened.tensors["model.layers.1.self_attn.q_proj.weight"].read()
    expected = as_stored(weights["model.layers.1.self_attn.q_proj.weight"], quant)
    np.testing.assert_array_equal(query, expected)


def test_plain_values_are_a_view_of_the_file(tmp_path: Path) -> None:
    opened = load_target(write_gguf(tmp_path / "tiny.gguf"))
    values = opened.tensors["model.layers.0.mlp.up_proj.weight"].read()
    assert not values.flags.owndata and not values.flags.writeable


@pytest.mark.parametrize("name", [*PLAIN, *sorted(QUANTISED)])
def test_every_listed_type_can_be_decoded(name: str) -> None:
    import gguf

    kind = block_type(gguf.GGMLQuantizationType[name].value, "t", where="f")
    blocks = np.zeros(2 * kind.block_bytes * (256 // min(256, kind.block_elements)), np.uint8)
    shape = (2, blocks.size // 2 // kind.block_bytes * kind.block_elements)
    values = kind.decode(blocks, shape)
    assert values.shape == shape and values.dtype == kind.dtype.numpy


def test_text_files_are_made(tmp_path: Path) -> None:
    target = TinyTarget(vocab_size=300)
    opened = load_target(write_gguf(tmp_path / "tiny.gguf", target))
    files = opened.text_files
    assert files["chat_template.jinja"] == b"{{ messages[0]['content'] }}"
    assert json.loads(files["tokenizer_config.json"])["eos_token"] == "</s>"
    assert json.loads(files["generation_config.json"]) == {"eos_token_id": [2], "bos_token_id": 1}
    assert (opened.config.name, opened.config.eos_token_ids, opened.config.bos_token_id) == ("tiny", (2,), 1)
    # The config.json that is made describes the same target once more.
    folder = write_target(tmp_path / "again", target)
    (folder / "config.json").write_bytes(files["config.json"])
    assert load_target(folder).config == replace(opened.config, name="again")


def test_end_of_turn_ends_too(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", extra={"tokenizer.ggml.eot_token_id": 7})
    assert load_target(path).config.eos_token_ids == (2, 7)


def _scaling(kind: str) -> dict[str, Any]:
    names = {"factor": "factor", "original_max_position_embeddings": "original_context_length"}
    rope = ROPES[kind]
    return {"llama.rope.scaling.type": kind} | {
        f"llama.rope.scaling.{ours}": rope[theirs] for theirs, ours in names.items() if theirs in rope
    }


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_rope_scaling(tmp_path: Path, kind: str) -> None:
    target = TinyTarget(rope=ROPES[kind])
    path = write_gguf(tmp_path / "tiny.gguf", target, extra=_scaling(kind))
    assert load_target(path).config.rope == load_target(write_target(tmp_path / "tiny", target)).config.rope


@pytest.mark.parametrize(("factor", "length", "head_dim"), [(8.0, 8192, 128), (32.0, 8192, 64), (4.0, 64, 16)])
def test_llama3_scaling_is_found_from_its_factors(tmp_path: Path, factor: float, length: int, head_dim: int) -> None:
    plain = RopeConfig(theta=500_000.0)
    scaled = replace(plain, rope_type="llama3", factor=factor, original_max_position=length)
    factors = plain.inverse_frequencies(head_dim) / scaled.inverse_frequencies(head_dim)
    target = TinyTarget(rope=ROPES["llama3"], head_dim=head_dim, num_layers=1)
    path = write_gguf(tmp_path / "tiny.gguf", target, extra_tensors={"rope_freqs.weight": factors})
    found = load_target(path).config.rope
    np.testing.assert_allclose(found.inverse_frequencies(head_dim), scaled.inverse_frequencies(head_dim), rtol=1e-6)
    if head_dim > 16:  # with eight frequencies several lengths give the same table
        assert found == scaled


@pytest.mark.parametrize("factors", [[2.0, 1.0] * 4, [1.0, 2.0], [float("nan")] * 8, [float("inf")] * 8])
def test_unknown_rope_factors_are_refused(tmp_path: Path, factors: list[float]) -> None:
    tensors = {"rope_freqs.weight": np.array(factors, np.float32)}
    with pytest.raises(CheckpointError) as caught:
        load_target(write_gguf(tmp_path / "tiny.gguf", extra_tensors=tensors))
    assert caught.value.code == "C040"


def test_rope_factors_of_one_are_no_scaling(tmp_path: Path) -> None:
    tensors = {"rope_freqs.weight": np.ones(8, np.float32)}
    assert load_target(write_gguf(tmp_path / "tiny.gguf", extra_tensors=tensors)).config.rope.rope_type == "default"


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("C016", {"general.architecture": "gemma3"}),
    ("C028", {"split.count": 2}),
    ("C035", {"llama.expert_count": 8}),
    ("C035", {"llama.attention.sliding_window": 4096}),
    ("C035", {"llama.rope.dimension_count": 8}),
    ("C035", {"llama.attention.value_length": 8}),
    ("C019", {"llama.block_count": None}),
    ("C019", {"llama.block_count": "four"}),
    ("C019", {"llama.attention.head_count_kv": [2, 2, 2, 2]}),
    ("C032", {"llama.block_count": 1_000_000_000}),
    ("C032", {"llama.attention.layer_norm_rms_epsilon": 0.0}),
    ("C036", {"tokenizer.ggml.eos_token_id": 61}),
    ("C040", {"llama.rope.scaling.type": "longrope"}),
    ("C027", {"tokenizer.ggml.token_type": [1, 2]}),
    ("C027", {"tokenizer.ggml.merges": ["a zz"]}),
    ("C019", {"tokenizer.ggml.merges": [1]}),
]


@pytest.mark.parametrize(("code", "extra"), REFUSED, ids=lambda value: str(value)[:40])
def test_metadata_that_is_refused(tmp_path: Path, code: str, extra: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_target(write_gguf(tmp_path / "tiny.gguf", extra=extra))
    assert caught.value.code == code
    assert "tiny.gguf" in str(caught.value)


def test_unknown_and_missing_tensors_are_reported_together(tmp_path: Path) -> None:
    weights = random_weights(TinyTarget())
    del weights["model.layers.2.mlp.up_proj.weight"]
    path = write_gguf(
        tmp_path / "tiny.gguf", weights=weights, extra_tensors={"blk.0.odd.weight": np.ones(4, np.float32)}
    )
    with pytest.raises(CheckpointError) as caught:
        load_target(path)
    assert str(caught.value) == (
        "error[C020]: 1 weight has no source: model.layers.2.mlp.up_proj.weight; "
        "1 checkpoint tensor unused: blk.0.odd.weight (tiny.gguf)"
    )


def test_unknown_tokenizer_is_left_out(tmp_path: Path) -> None:
    opened = load_target(write_gguf(tmp_path / "tiny.gguf", extra={"tokenizer.ggml.pre": "tekken"}))
    assert "tokenizer.json" not in opened.text_files
    assert "tekken" in opened.warnings[0] and "token ids" in opened.warnings[0]
