# SPDX-License-Identifier: Apache-2.0
"""The families of targets: which architectures they are, and the table of their weights.

Owns canonical (Hugging Face) names and shapes by named dim. A new family is a new row here. It reads no files.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hspec_trt.config.target import TargetConfig, TargetFamily

EMBEDDING: Final = "model.embed_tokens.weight"
HEAD: Final = "lm_head.weight"


@dataclass(frozen=True)
class WeightRow:
    """One weight, or one of every layer.

    Attributes:
        name: canonical name; ``{layer}`` stands for the layer number.
        dims: shape, as keys of `_dims`.
        present: whether a model of this configuration has it.
    """

    name: str
    dims: tuple[str, ...]
    present: Callable[[TargetConfig], bool] = lambda config: True


@dataclass(frozen=True)
class Family:
    """How checkpoints of a family are recognised, and what they hold.

    Attributes:
        name: also its ``model_type`` in config.json.
        architecture: its entry of ``architectures`` in config.json.
        explicit_heads: head_dim and num_key_value_heads must be given.
        mlp_bias: the option ``mlp_bias`` exists.
        windows: sliding-window options exist.
    """

    name: TargetFamily
    architecture: str
    weights: tuple[WeightRow, ...]
    explicit_heads: bool
    mlp_bias: bool
    windows: bool


def _qk_norm(config: TargetConfig) -> bool:
    return config.qk_norm


def _attention_bias(config: TargetConfig) -> bool:
    return config.attention_bias


def _mlp_bias(config: TargetConfig) -> bool:
    return config.mlp_bias


def _own_head(config: TargetConfig) -> bool:
    return not config.tie_word_embeddings


_LAYER = "model.layers.{layer}."
_DECODER: Final = (
    WeightRow(EMBEDDING, ("embedding_rows", "hidden")),
    WeightRow(_LAYER + "input_layernorm.weight", ("hidden",)),
    WeightRow(_LAYER + "self_attn.q_proj.weight", ("q", "hidden")),
    WeightRow(_LAYER + "self_attn.q_proj.bias", ("q",), _attention_bias),
    WeightRow(_LAYER + "self_attn.k_proj.weight", ("kv", "hidden")),
    WeightRow(_LAYER + "self_attn.k_proj.bias", ("kv",), _attention_bias),
    WeightRow(_LAYER + "self_attn.v_proj.weight", ("kv", "hidden")),
    WeightRow(_LAYER + "self_attn.v_proj.bias", ("kv",), _attention_bias),
    WeightRow(_LAYER + "self_attn.o_proj.weight", ("hidden", "q")),
    WeightRow(_LAYER + "self_attn.o_proj.bias", ("hidden",), _attention_bias),
    WeightRow(_LAYER + "self_attn.q_norm.weight", ("head",), _qk_norm),
    WeightRow(_LAYER + "self_attn.k_norm.weight", ("head",), _qk_norm),
    WeightRow(_LAYER + "post_attention_layernorm.weight", ("hidden",)),
    WeightRow(_LAYER + "mlp.gate_proj.weight", ("mlp", "hidden")),
    WeightRow(_LAYER + "mlp.gate_proj.bias", ("mlp",), _mlp_bias),
    WeightRow(_LAYER + "mlp.up_proj.weight", ("mlp", "hidden")),
    WeightRow(_LAYER + "mlp.up_proj.bias", ("mlp",), _mlp_bias),
    WeightRow(_LAYER + "mlp.down_proj.weight", ("hidden", "mlp")),
    WeightRow(_LAYER + "mlp.down_proj.bias", ("hidden",), _mlp_bias),
    WeightRow("model.norm.weight", ("hidden",)),
    WeightRow(HEAD, ("embedding_rows", "hidden"), _own_head),
)

FAMILIES: Final[dict[TargetFamily, Family]] = {
    family.name: family
    for family in (
        Family("llama", "LlamaForCausalLM", _DECODER, explicit_heads=False, mlp_bias=True, windows=False),
        Family("qwen3", "Qwen3ForCausalLM", _DECODER, explicit_heads=True, mlp_bias=False, windows=True),
    )
}

IGNORED: Final = (
    re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),
    re.compile(r"model\.rotary_emb\.inv_freq"),
)
"""Tensors that may stay unused: rope tables of old checkpoints, which follow from the configuration."""


def target_weights(config: TargetConfig) -> dict[str, tuple[int, ...]]:
    """Canonical name to shape of every weight that a target of this configuration has, in the order of use."""
    dims = _dims(config)
    rows = [row for row in FAMILIES[config.family].weights if row.present(config)]
    first = [row for row in rows if row.name == EMBEDDING]
    last = [row for row in rows if not row.name.startswith(_LAYER) and row.name != EMBEDDING]
    wanted = {row.name: row for row in first}
    for layer in range(config.num_layers):
        wanted |= {row.name.format(layer=layer): row for row in rows if row.name.startswith(_LAYER)}
    wanted |= {row.name: row for row in last}
    return {name: tuple(dims[dim] for dim in row.dims) for name, row in wanted.items()}


def _dims(config: TargetConfig) -> dict[str, int]:
    return {
        "embedding_rows": config.embedding_rows,
        "hidden": config.hidden_size,
        "q": config.num_heads * config.head_dim,
        "kv": config.num_kv_heads * config.head_dim,
        "head": config.head_dim,
        "mlp": config.intermediate_size,
    }
