# SPDX-License-Identifier: Apache-2.0
"""The transformer part of a drafter's configuration: sizes, rotary embedding, windows.

Owns field names and bounds of a serialised transformers configuration (qwen3 or llama) as drafters use it, and the
checks against the target. It knows no drafter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict

from hspec_trt.checkpoint.fields import Fields
from hspec_trt.checkpoint.formats.layout import DrafterSource
from hspec_trt.checkpoint.hf_config import (
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_HIDDEN_SIZE,
    MAX_INTERMEDIATE_SIZE,
)
from hspec_trt.checkpoint.hf_rope import MAX_POSITIONS, read_rope
from hspec_trt.config.rope import RopeConfig
from hspec_trt.contract import MAX_VOCAB_SIZE

MODEL_TYPES: Final = ("qwen3", "llama")
MAX_DRAFT_LAYERS: Final = 64
_LAYER_TYPES: Final = ("full_attention", "sliding_attention")


class CommonSizes(TypedDict):
    """The fields that `DraftTransformer` hands to every drafter configuration."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    max_position: int


@dataclass(frozen=True)
class DraftTransformer:
    """Sizes of the draft layers.

    Attributes:
        sizes: fields by their name in `DrafterConfig`.
        windows: per draft layer, sliding window in tokens; 0 is full attention.
    """

    model_type: str
    sizes: CommonSizes
    windows: tuple[int, ...]
    attention_bias: bool
    mlp_bias: bool


def read_transformer(source: DrafterSource, fields: Fields, *, fewest_layers: int = 1) -> DraftTransformer:
    """Read the draft layers' configuration; faults (C030 to C040, D113, D114, D131, D132) are noted in `source`.

    Args:
        fields: the object that holds it: ``transformer_layer_config``, or config.json itself in the original formats.
        fewest_layers: layers that a drafter of this kind has at least.
    """
    model_type = fields.text("model_type", "")
    if model_type not in MODEL_TYPES:
        source.fault(
            "D132", f"draft layers of type {model_type[:80]!r}", needed=" or ".join(MODEL_TYPES), name="model_type"
        )
    if fields.text("hidden_act", "silu") != "silu":
        source.fault("D132", f"hidden_act {fields.text('hidden_act')[:80]!r}", needed="silu", name="hidden_act")
    num_layers = fields.integer("num_hidden_layers", fewest_layers, MAX_DRAFT_LAYERS)
    transformer = DraftTransformer(
        model_type=model_type,
        sizes=_sizes(fields, model_type),
        windows=_windows(source, fields, num_layers),
        attention_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
    )
    _check_target(source, transformer.sizes)
    return transformer


def _sizes(fields: Fields, model_type: str) -> CommonSizes:
    hidden_size = fields.integer("hidden_size", 2, MAX_HIDDEN_SIZE)
    num_heads = fields.integer("num_attention_heads", 1, MAX_HEADS)
    num_kv_heads = fields.integer("num_key_value_heads", 1, MAX_HEADS)
    if num_heads % num_kv_heads:
        found = f"num_attention_heads {num_heads} is not a multiple of num_key_value_heads {num_kv_heads}"
        fields.fault("C030", found)
    max_position = fields.integer("max_position_embeddings", 1, MAX_POSITIONS)
    head_dim = _head_dim(fields, model_type, hidden_size, num_heads)
    return CommonSizes(
        vocab_size=fields.integer("vocab_size", 2, MAX_VOCAB_SIZE),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size", 1, MAX_INTERMEDIATE_SIZE),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=fields.number("rms_norm_eps", 0, 0.1),
        rope=read_rope(fields, head_dim=head_dim, max_position=max_position),
        max_position=max_position,
    )


def _head_dim(fields: Fields, model_type: str, hidden_size: int, num_heads: int) -> int:
    if fields.has("head_dim") or model_type != "llama":
        return fields.integer("head_dim", 2, MAX_HEAD_DIM)
    if hidden_size % num_heads:
        found = (
            f"hidden_size {hidden_size} is not a multiple of num_attention_heads {num_heads} and head_dim is not set"
        )
        fields.fault("C030", found)
        return 2
    return max(2, min(MAX_HEAD_DIM, hidden_size // num_heads))


def _windows(source: DrafterSource, fields: Fields, num_layers: int) -> tuple[int, ...]:
    kinds = fields.texts("layer_types")
    window = fields.integer("sliding_window", 1, MAX_POSITIONS) if fields.has("sliding_window") else 0
    used = window if fields.flag("use_sliding_window", bool(window)) else 0
    if kinds is None:
        if used:
            found = f"sliding_window is {used}, but layer_types does not say which layers slide"
            source.fault("D131", found, needed="layer_types, or use_sliding_window false", name="layer_types")
        source.notes.append("draft layers: no layer_types, so full attention on all")
        return (0,) * num_layers
    strange = [kind for kind in kinds if kind not in _LAYER_TYPES]
    if len(kinds) != num_layers or strange:
        found = (
            f"layer type {strange[0][:80]!r}" if strange else f"layer_types has {len(kinds)} entries for {num_layers}"
        )
        source.fault("D131", found, needed=f"{num_layers} of {' or '.join(_LAYER_TYPES)}", name="layer_types")
    elif "sliding_attention" in kinds and not used:
        found = "layer_types has sliding_attention, but use_sliding_window or sliding_window is not set"
        source.fault("D131", found, needed="a window", name="sliding_window")
    return tuple(used if kind == "sliding_attention" else 0 for kind in kinds)


def _check_target(source: DrafterSource, sizes: CommonSizes) -> None:
    target = source.target
    if sizes["hidden_size"] != target.hidden_size:
        found = f"drafter hidden_size {sizes['hidden_size']}, target {target.hidden_size}"
        source.fault("D114", found, needed="the same", fix="This drafter was trained for another target")
    if sizes["vocab_size"] not in (target.vocab_size, target.embedding_rows):
        rows = f"{target.vocab_size}" + (
            f" or {target.embedding_rows}" if target.embedding_rows != target.vocab_size else ""
        )
        source.fault(
            "D113", f"drafter vocab_size {sizes['vocab_size']}", needed=f"the target's, {rows}", name="vocab_size"
        )
    if sizes["max_position"] < target.max_position:
        source.warnings.append(
            f"warning[D140] the drafter was trained to {sizes['max_position']} positions, the target takes "
            f"{target.max_position}: drafting stops at {sizes['max_position']}"
        )
