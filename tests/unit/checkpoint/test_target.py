# SPDX-License-Identifier: Apache-2.0
"""Targets in Hugging Face's format: what is opened is what transformers opens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hspec_trt.checkpoint.target import load_target
from hspec_trt.checkpoint.tensors import MappedTensor
from tests.support.tiny_models import ROPES, TinyTarget, random_weights, t_bigram, t_stamp, t_tie, write_target

TARGETS = {
    "llama": TinyTarget(),
    "llama-tied": TinyTarget(tied=True),
    "llama-biases": TinyTarget(attention_bias=True, mlp_bias=True),
    "llama-bf16": TinyTarget(dtype="bfloat16"),
    "qwen3": TinyTarget(family="qwen3", vocab_size=300),
    "qwen3-tied-f16": TinyTarget(family="qwen3", tied=True, dtype="float16"),
    "qwen3-window": TinyTarget(family="qwen3", window=8, first_window_layer=2),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("num_shards", [1, 3])
def test_every_weight_is_read_as_it_was_written(tmp_path: Path, target: TinyTarget, num_shards: int) -> None:
    weights = random_weights(target)
    opened = load_target(write_target(tmp_path, target, weights, num_shards=num_shards))
    assert list(opened.tensors) == list(dict.fromkeys([*opened.tensors])) and set(opened.tensors) == set(weights)
    for name, source in opened.tensors.items():
        values = source.read()
        assert (source.name, source.shape, source.dtype.numpy) == (name, values.shape, values.dtype)
        np.testing.assert_array_equal(values, weights[name])
        assert not values.flags.owndata and not values.flags.writeable
        assert isinstance(source, MappedTensor) and source.path.parent == tmp_path
    assert opened.warnings == ()


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_configuration_is_what_was_written(tmp_path: Path, target: TinyTarget) -> None:
    config = load_target(write_target(tmp_path / "tiny", target)).config
    assert (config.family, config.name) == (target.family, "tiny")
    assert (config.vocab_size, config.embedding_rows, config.hidden_size) == (target.vocab_size, target.rows, 64)
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.num_layers) == (4, 2, 16, 4)
    assert (config.tie_word_embeddings, config.attention_bias) == (target.tied, target.attention_bias)
    assert (config.mlp_bias, config.qk_norm) == (target.mlp_bias, target.family == "qwen3")
    assert (config.bos_token_id, config.eos_token_ids, config.max_position) == (1, (2,), 256)
    assert [config.window(layer) for layer in range(4)] == ([0, 0, 8, 8] if target.window else [0] * 4)


@pytest.mark.parametrize("old", [False, True], ids=["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("kind", ROPES)
def test_rope_has_two_spellings(tmp_path: Path, kind: str, old: bool) -> None:
    target = TinyTarget(rope=ROPES[kind], old_rope_spelling=old)
    rope = load_target(write_target(tmp_path, target)).config.rope
    assert (rope.rope_type, rope.theta) == (kind, ROPES[kind]["rope_theta"])
    assert rope.factor == ROPES[kind].get("factor", 1.0)
    assert rope.original_max_position == ROPES[kind].get("original_max_position_embeddings", 0)


def test_text_files_are_as_found(tmp_path: Path) -> None:
    folder = write_target(tmp_path)
    files = load_target(folder).text_files
    assert set(files) == {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    assert all((folder / name).read_bytes() == data for name, data in files.items())
    assert "tokenizer.json" not in load_target(write_target(tmp_path / "b", tokenizer=False)).text_files


def test_bigram_target_follows_its_permutation() -> None:
    target, weights = t_bigram()
    embedding, head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
    following = np.argmax(embedding @ head.T, axis=1)
    assert sorted(following) == list(range(target.vocab_size))
    token, seen = 0, 0
    while seen == 0 or token:
        token, seen = int(following[token]), seen + 1
    assert seen == target.vocab_size


@pytest.mark.parametrize("eps", [0.0, float(np.spacing(np.float32(1))), 1e-3])
def test_tie_target_has_the_gap(eps: float) -> None:
    _, weights = t_tie(eps)
    head = weights["lm_head.weight"]
    assert (head[40] - head[20]).max() == np.float32(1 + np.float32(eps)) - np.float32(1)


def test_stamp_target_names_its_layers() -> None:
    target, weights = t_stamp()
    stamps = [weights[f"model.layers.{layer}.self_attn.o_proj.bias"][-1] for layer in range(target.num_layers)]
    assert stamps == [1, 2, 3, 4]
    assert not weights["model.embed_tokens.weight"][:, -1].any()


def test_padded_rows_are_known(tmp_path: Path) -> None:
    config = load_target(write_target(tmp_path, replace(TinyTarget(), embedding_rows=64))).config
    assert (config.vocab_size, config.embedding_rows) == (61, 64)
