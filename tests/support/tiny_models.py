# SPDX-License-Identifier: Apache-2.0
"""Tiny Llama and Qwen3 targets in Hugging Face's format, with weights from a seed, for every test that needs a target.

`TinyTarget` says what the target is like, `random_weights` and the makers of special targets give its tensors, and
`write_target` writes a folder that both our loader and transformers open.

=============  ========================================================================================================
`t_rand`       random weights N(0, 0.2), seed 0
`t_bigram`     the next token is a permutation of the last one, known in closed form
`t_tie`        as `t_bigram`, with two head rows that are equal but for a given gap
`t_stamp`      channel 63 of the residual stream after L layers is L (L + 1) / 2
=============  ========================================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hspec_trt import dtypes
from tests.support.safetensors_writer import write_safetensors
from tests.support.tiny_tokenizer import BOS_ID, EOS_ID, tokenizer_files

Weights = dict[str, np.ndarray]

ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10_000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}
"""Rope parameters of each supported type, in the new spelling."""

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}


@dataclass(frozen=True)
class TinyTarget:
    """What a tiny target is like; the defaults are those of `t_rand`.

    Attributes:
        embedding_rows: rows of embedding and head; None is `vocab_size`.
        tied: the head is the embedding.
        rope: as in ``rope_parameters``; see `ROPES`.
        old_rope_spelling: write ``rope_scaling`` with ``type`` and a top-level ``rope_theta``.
        window, first_window_layer: sliding window (Qwen3), tokens, from this layer on; 0 is none.
        dtype: type of the stored weights.
        std: standard deviation of the weights.
    """

    family: str = "llama"
    vocab_size: int = 61
    embedding_rows: int | None = None
    hidden_size: int = 64
    intermediate_size: int = 128
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    max_position: int = 256
    rms_norm_eps: float = 1e-5
    tied: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    rope: Mapping[str, Any] = field(default_factory=lambda: dict(ROPES["default"]))
    old_rope_spelling: bool = False
    window: int = 0
    first_window_layer: int = 0
    bos_token_id: int = BOS_ID
    eos_token_ids: tuple[int, ...] = (EOS_ID,)
    dtype: str = "float32"
    std: float = 0.2
    seed: int = 0

    @property
    def rows(self) -> int:
        """Rows of the embedding."""
        return self.vocab_size if self.embedding_rows is None else self.embedding_rows

    def config(self) -> dict[str, Any]:
        """config.json."""
        config: dict[str, Any] = {
            "architectures": [_ARCHITECTURES[self.family]],
            "model_type": self.family,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.max_position,
            "rms_norm_eps": self.rms_norm_eps,
            "hidden_act": "silu",
            "tie_word_embeddings": self.tied,
            "attention_bias": self.attention_bias,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": list(self.eos_token_ids),
            "dtype": self.dtype,
        }
        if self.family == "llama":
            config["mlp_bias"] = self.mlp_bias
        if self.window:
            config |= {"use_sliding_window": True, "sliding_window": self.window}
            config["max_window_layers"] = self.first_window_layer
        return config | self._rope()

    def _rope(self) -> dict[str, Any]:
        if not self.old_rope_spelling:
            return {"rope_parameters": dict(self.rope)}
        scaling = {key: value for key, value in self.rope.items() if key not in ("rope_type", "rope_theta")}
        kind = self.rope["rope_type"]
        scaling = None if kind == "default" else {"type": kind, **scaling}
        return {"rope_theta": self.rope["rope_theta"], "rope_scaling": scaling}


def random_weights(target: TinyTarget) -> Weights:
    """Every weight of the target by canonical name: N(0, std), norms around 1; stored type `target.dtype`."""
    generator = np.random.default_rng(target.seed)
    stored = dtypes.BY_NAME[target.dtype].numpy
    weights: Weights = {}
    for name, shape in _shapes(target).items():
        values = generator.normal(0.0, target.std, shape)
        weights[name] = (1.0 + values if "norm" in name else values).astype(np.float32).astype(stored)
    return weights


def _shapes(target: TinyTarget) -> dict[str, tuple[int, ...]]:
    hidden, mlp = target.hidden_size, target.intermediate_size
    q, kv = target.num_heads * target.head_dim, target.num_kv_heads * target.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (target.rows, hidden)}
    attention = {"q_proj": (q, hidden), "k_proj": (kv, hidden), "v_proj": (kv, hidden), "o_proj": (hidden, q)}
    feed_forward = {"gate_proj": (mlp, hidden), "up_proj": (mlp, hidden), "down_proj": (hidden, mlp)}
    for layer in range(target.num_layers):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (hidden,)
        for part, matrices, bias in (
            ("self_attn", attention, target.attention_bias),
            ("mlp", feed_forward, target.mlp_bias),
        ):
            for name, shape in matrices.items():
                shapes[f"{prefix}{part}.{name}.weight"] = shape
                if bias:
                    shapes[f"{prefix}{part}.{name}.bias"] = shape[:1]
        if target.family == "qwen3":
            shapes |= {f"{prefix}self_attn.{name}_norm.weight": (target.head_dim,) for name in "qk"}
        shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    if not target.tied:
        shapes["lm_head.weight"] = (target.rows, hidden)
    return shapes


def t_rand(**changes: Any) -> tuple[TinyTarget, Weights]:
    """T-RAND, with fields of `TinyTarget` changed."""
    target = replace(TinyTarget(), **changes)
    return target, random_weights(target)


def t_bigram(permutation: Sequence[int] | None = None, **changes: Any) -> tuple[TinyTarget, Weights]:
    """T-BIGRAM: after token x comes ``permutation[x]`` (by default `one_cycle`), by a wide margin."""
    target, weights = t_rand(**changes)
    following = list(one_cycle(target.vocab_size) if permutation is None else permutation)
    for name, values in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight", ".bias")):
            values[...] = 0
        elif "norm" in name:
            values[...] = 1
    embedding, head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
    embedding[...], head[...] = 0, 0
    tokens = np.arange(target.vocab_size)
    embedding[tokens, tokens] = 1
    head[following, tokens] = 1
    return target, weights


def one_cycle(vocab_size: int, seed: int = 0) -> list[int]:
    """A permutation that is one cycle through all tokens."""
    order = np.random.default_rng(seed).permutation(vocab_size)
    following = np.empty(vocab_size, np.int64)
    following[order] = np.roll(order, -1)
    return [int(token) for token in following]


def t_tie(eps: float, pair: tuple[int, int] = (20, 40), **changes: Any) -> tuple[TinyTarget, Weights]:
    """T-TIE: T-BIGRAM in which the head row of the second token of `pair` is that of the first, plus `eps`.

    So wherever the first would come next, the second's logit is the same (eps 0) or higher by 8 eps.
    """
    target, weights = t_bigram(**changes)
    head = weights["lm_head.weight"]
    head[pair[1]] = head[pair[0]] + (head[pair[0]] != 0) * np.asarray(eps, head.dtype)
    return target, weights


def t_stamp(**changes: Any) -> tuple[TinyTarget, Weights]:
    """T-STAMP: T-RAND in which layer i (from 0) adds i + 1 to the last residual channel, and nothing else does."""
    target, weights = t_rand(attention_bias=True, **changes)
    weights["model.embed_tokens.weight"][:, -1] = 0
    for layer in range(target.num_layers):
        prefix = f"model.layers.{layer}."
        weights[prefix + "self_attn.o_proj.weight"][-1] = 0
        weights[prefix + "mlp.down_proj.weight"][-1] = 0
        weights[prefix + "self_attn.o_proj.bias"][-1] = layer + 1
        if target.mlp_bias:
            weights[prefix + "mlp.down_proj.bias"][-1] = 0
    return target, weights


def write_target(
    folder: Path,
    target: TinyTarget | None = None,
    weights: Weights | None = None,
    *,
    num_shards: int = 1,
    tokenizer: bool = True,
) -> Path:
    """Write a Hugging Face folder.

    Args:
        target: None is T-RAND.
        weights: None is `random_weights`.
        num_shards: 1 writes model.safetensors, more write shards and an index.
    """
    target = target or TinyTarget()
    weights = random_weights(target) if weights is None else weights
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", target.config())
    generation = {"bos_token_id": target.bos_token_id, "eos_token_id": list(target.eos_token_ids)}
    write_json(folder / "generation_config.json", generation)
    if tokenizer:
        for name, data in tokenizer_files(target.vocab_size).items():
            (folder / name).write_bytes(data)
    if num_shards == 1:
        write_safetensors(folder / "model.safetensors", weights)
    else:
        write_shards(folder, weights, num_shards)
    return folder


def write_shards(folder: Path, weights: Weights, num_shards: int) -> None:
    """Write ``model-0000i-of-0000n.safetensors`` and the index."""
    names = list(weights)
    shard_of = {}
    for shard in range(num_shards):
        file = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        chosen = names[shard * len(names) // num_shards : (shard + 1) * len(names) // num_shards]
        write_safetensors(folder / file, {name: weights[name] for name in chosen})
        shard_of |= dict.fromkeys(chosen, file)
    total = sum(values.nbytes for values in weights.values())
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": shard_of})


def write_json(path: Path, value: object) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(value, indent=2) + "\n")


def edit_config(folder: Path, **changes: Any) -> None:
    """Change fields of a folder's config.json; a field that is set to `DROP` is removed."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    write_json(path, {key: value for key, value in config.items() if value is not DROP})


DROP = object()
"""Stands for "remove this field" in `edit_config`."""
