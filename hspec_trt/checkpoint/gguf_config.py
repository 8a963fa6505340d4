# SPDX-License-Identifier: Apache-2.0
"""Writes the config.json and generation_config.json that a GGUF file stands for.

Owns ggml's configuration keys, and refuses what they can say but our targets cannot do. Bounds are checked where the
result is read, as for any other config.json. It opens no files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hspec_trt.checkpoint.families import FAMILIES
from hspec_trt.checkpoint.gguf_metadata import Metadata
from hspec_trt.checkpoint.json_text import JsonObject
from hspec_trt.config.rope import RopeConfig
from hspec_trt.config.target import TargetFamily
from hspec_trt.errors import CheckpointError


@dataclass(frozen=True)
class Architecture:
    """A GGUF architecture.

    Attributes:
        name: value of ``general.architecture``, and the prefix of its keys.
        interleaved_rope: ggml rotates neighbouring channels, so its converter reordered the rows of q and k.
    """

    name: str
    family: TargetFamily
    interleaved_rope: bool


ARCHITECTURES: Final = {
    row.name: row
    for row in (
        Architecture("llama", "llama", interleaved_rope=True),
        Architecture("qwen3", "qwen3", interleaved_rope=False),
    )
}
_NEUTRAL: Final[dict[str, float]] = {
    "expert_count": 0,
    "attention.sliding_window": 0,
    "attention.scale": 0,
    "embedding_scale": 1,
    "residual_scale": 1,
    "logit_scale": 1,
    "rope.scaling.attn_factor": 1,
    "rope.scaling.yarn_attn_factor": 1,
    "rope.scaling.yarn_ext_factor": 1,
}
"""Options that are supported only at the value that switches them off."""

_END_KEYS: Final = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
_LLAMA3_LENGTHS: Final = tuple(1 << power for power in range(5, 21))
_LLAMA3_TOLERANCE: Final = 1e-4  # the factors are stored as float32


@dataclass(frozen=True)
class TensorFacts:
    """What the tensors of a GGUF file say about its configuration.

    Attributes:
        tied: there is no head of its own.
        rope_factors: the divisors of the inverse frequencies, ``[head_dim / 2]``; None where there are none.
    """

    tied: bool
    attention_bias: bool
    mlp_bias: bool
    rope_factors: NDArray[np.float32] | None


def find_architecture(metadata: Metadata) -> Architecture:
    """The architecture of a GGUF file.

    Raises:
        CheckpointError: C016 for one that is not supported, C019, C028 for a part of a split file.
    """
    name = metadata.text("general.architecture")
    if name not in ARCHITECTURES:
        needed = ", ".join(ARCHITECTURES)
        raise CheckpointError("C016", f"GGUF architecture {name[:80]!r}", needed=needed, where=metadata.where)
    if metadata.integer("split.count", 1) > 1:
        found = f"the file is one of {metadata.integer('split.count')} parts"
        raise CheckpointError("C028", found, where=metadata.where, fix="Merge them with llama-gguf-split --merge")
    return ARCHITECTURES[name]


def gguf_config(metadata: Metadata, architecture: Architecture, facts: TensorFacts) -> JsonObject:
    """The config.json that a GGUF file stands for.

    Raises:
        CheckpointError: C019 for metadata that is missing or of the wrong type, C035 for an option, C040 for the rope.
    """
    prefix = architecture.name + "."
    for key, neutral in _NEUTRAL.items():
        if metadata.has(prefix + key) and metadata.number(prefix + key) != neutral:
            found = f"{prefix}{key} is {metadata.number(prefix + key):g}"
            raise CheckpointError("C035", found, needed=f"{neutral:g}", where=metadata.where)
    hidden_size = metadata.integer(prefix + "embedding_length")
    num_heads = metadata.integer(prefix + "attention.head_count")
    head_dim = metadata.integer(prefix + "attention.key_length", hidden_size // max(num_heads, 1))
    for key in ("attention.value_length", "rope.dimension_count"):
        if metadata.integer(prefix + key, head_dim) != head_dim:
            found = f"{prefix}{key} is {metadata.integer(prefix + key)}"
            raise CheckpointError("C035", found, needed=f"the head size, {head_dim}", where=metadata.where)
    return {
        "architectures": [FAMILIES[architecture.family].architecture],
        "model_type": architecture.family,
        "vocab_size": _vocab_size(metadata, prefix),
        "hidden_size": hidden_size,
        "intermediate_size": metadata.integer(prefix + "feed_forward_length"),
        "num_hidden_layers": metadata.integer(prefix + "block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": metadata.integer(prefix + "attention.head_count_kv", num_heads),
        "head_dim": head_dim,
        "rms_norm_eps": metadata.number(prefix + "attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": metadata.integer(prefix + "context_length"),
        "rope_parameters": _rope(metadata, prefix, head_dim, facts.rope_factors),
        "tie_word_embeddings": facts.tied,
        "attention_bias": facts.attention_bias,
        "mlp_bias": facts.mlp_bias,
        "hidden_act": "silu",
    }


def gguf_generation_config(metadata: Metadata) -> JsonObject:
    """The generation_config.json that a GGUF file stands for: the ids that begin and end a text."""
    ends = [metadata.integer(key) for key in _END_KEYS if metadata.has(key)]
    config: JsonObject = {"eos_token_id": [*dict.fromkeys(ends)]} if ends else {}
    if metadata.has("tokenizer.ggml.bos_token_id"):
        config["bos_token_id"] = metadata.integer("tokenizer.ggml.bos_token_id")
    return config


def _vocab_size(metadata: Metadata, prefix: str) -> int:
    if metadata.has(prefix + "vocab_size"):
        return metadata.integer(prefix + "vocab_size")
    return len(metadata.texts("tokenizer.ggml.tokens"))


def _rope(metadata: Metadata, prefix: str, head_dim: int, factors: NDArray[np.float32] | None) -> JsonObject:
    theta = metadata.number(prefix + "rope.freq_base", 10_000.0)
    kind = metadata.text(prefix + "rope.scaling.type", "none")
    if factors is not None and np.any(factors != 1):
        return _llama3(factors, theta, head_dim, metadata.where)
    if kind == "none":
        return {"rope_type": "default", "rope_theta": theta}
    rope: JsonObject = {"rope_type": kind, "rope_theta": theta}
    for name, key in (
        ("factor", "factor"),
        ("original_max_position_embeddings", "original_context_length"),
        ("beta_fast", "yarn_beta_fast"),
        ("beta_slow", "yarn_beta_slow"),
    ):
        value = metadata.values.get(f"{prefix}rope.scaling.{key}")
        if value is not None and not isinstance(value, list):
            rope[name] = value
    return rope


def _llama3(factors: NDArray[np.float32], theta: float, head_dim: int, where: str) -> JsonObject:
    """Llama 3's scaling, of which a GGUF file keeps only the factors: finds the trained length behind them."""
    plain = RopeConfig(theta=theta).inverse_frequencies(head_dim)
    if factors.shape == plain.shape and np.isfinite(factors).all():
        factor = float(factors.max())
        for length in _LLAMA3_LENGTHS:
            rope = RopeConfig("llama3", theta, factor=factor, original_max_position=length)
            if np.allclose(plain / rope.inverse_frequencies(head_dim), factors, rtol=_LLAMA3_TOLERANCE):
                return {
                    "rope_type": "llama3",
                    "rope_theta": theta,
                    "factor": factor,
                    "low_freq_factor": rope.low_freq_factor,
                    "high_freq_factor": rope.high_freq_factor,
                    "original_max_position_embeddings": length,
                }
    raise CheckpointError("C040", "rope_freqs.weight holds unknown factors", needed="those of llama3", where=where)
