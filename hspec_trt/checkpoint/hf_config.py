# SPDX-License-Identifier: Apache-2.0
"""Reads a target's config.json and generation_config.json into a `TargetConfig`.

Owns field names, bounds and which options are supported. Every number is bounded here, before anything is allocated by
it. It opens no files and knows no tensors.
"""

from __future__ import annotations

from typing import Final

from hspec_trt.checkpoint.families import FAMILIES, Family
from hspec_trt.checkpoint.fields import REQUIRED, Fields
from hspec_trt.checkpoint.hf_rope import MAX_POSITIONS, read_rope
from hspec_trt.checkpoint.json_text import JsonObject
from hspec_trt.checkpoint.shown import printable
from hspec_trt.config.target import TargetConfig
from hspec_trt.contract import MAX_VOCAB_SIZE
from hspec_trt.errors import CheckpointError

CONFIG: Final = "config.json"
GENERATION_CONFIG: Final = "generation_config.json"
MAX_LAYERS: Final = 1024
MAX_HIDDEN_SIZE: Final = 1 << 17
MAX_INTERMEDIATE_SIZE: Final = 1 << 20
MAX_HEADS: Final = 1024
MAX_HEAD_DIM: Final = 1024
_ACTIVATIONS: Final = ("silu", "swish")
_MAX_TOKEN_ID: Final = (1 << 31) - 1


def read_target_config(
    config: JsonObject, generation: JsonObject, *, name: str, sources: tuple[str, str] = (CONFIG, GENERATION_CONFIG)
) -> TargetConfig:
    """The configuration of a target.

    Args:
        config: config.json.
        generation: generation_config.json; empty where there is none.
        name: what the target is called in messages and manifests.
        sources: the files that the two objects are from, for messages.

    Returns:
        The configuration, with `embedding_rows` equal to `vocab_size`; the stored embedding may have more.

    Raises:
        CheckpointError: C012, C013, C030 to C037, C040; several at once as a `FaultGroup`.
    """
    fields = Fields(config, sources[0])
    family = find_family(fields)
    _refuse_unsupported(fields)
    target = _read(fields, Fields(generation, sources[1], fields.faults), family, name)
    fields.faults.raise_any()
    return target


def find_family(fields: Fields) -> Family:
    """The family of a checkpoint, by ``architectures``, or by ``model_type`` where that is missing.

    Raises:
        CheckpointError: C012 for one that is not supported; lists those that are.
    """
    architectures = fields.texts("architectures")
    if architectures:
        for family in FAMILIES.values():
            if family.architecture in architectures:
                return family
        found = f"architecture {printable(', '.join(architectures), 200)} is not supported"
    else:
        model_type = fields.text("model_type", "")
        for family in FAMILIES.values():
            if family.name == model_type:
                return family
        found = (
            f"model_type {model_type[:200]!r} is not supported"
            if model_type
            else "neither architectures nor model_type"
        )
    known = ", ".join(family.architecture for family in FAMILIES.values())
    raise CheckpointError("C012", found, needed=known, where=fields.where)


def _refuse_unsupported(fields: Fields) -> None:
    if fields.has("quantization_config"):
        method = fields.object("quantization_config").text("quant_method", "unknown method")
        raise CheckpointError(
            "C013",
            f"the checkpoint is quantised ({printable(method)})",
            needed="weights in bfloat16, float16 or float32",
            where=f"{fields.where}: quantization_config",
            fix="Take the unquantised checkpoint of the same model",
        )
    activation = fields.text("hidden_act", _ACTIVATIONS[0])
    if activation not in _ACTIVATIONS:
        fields.fault("C035", f"hidden_act {activation[:80]!r}", needed=" or ".join(_ACTIVATIONS), name="hidden_act")


def _read(fields: Fields, generation: Fields, family: Family, name: str) -> TargetConfig:
    vocab_size = fields.integer("vocab_size", 2, MAX_VOCAB_SIZE)
    num_layers = fields.integer("num_hidden_layers", 1, MAX_LAYERS)
    hidden_size = fields.integer("hidden_size", 2, MAX_HIDDEN_SIZE)
    num_heads = fields.integer("num_attention_heads", 1, MAX_HEADS)
    num_kv_heads = fields.integer("num_key_value_heads", 1, MAX_HEADS, REQUIRED if family.explicit_heads else num_heads)
    head_dim = _head_dim(fields, family, hidden_size, num_heads)
    max_position = fields.integer("max_position_embeddings", 1, MAX_POSITIONS)
    if fields.sound("num_attention_heads", "num_key_value_heads") and num_heads % num_kv_heads:
        fields.fault("C030", f"num_attention_heads {num_heads} is not a multiple of num_key_value_heads {num_kv_heads}")
    return TargetConfig(
        family=family.name,
        vocab_size=vocab_size,
        embedding_rows=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size", 1, MAX_INTERMEDIATE_SIZE),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=fields.number("rms_norm_eps", 0, 0.1),
        rope=read_rope(fields, head_dim=head_dim, max_position=max_position),
        max_position=max_position,
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        attention_bias=fields.flag("attention_bias", False),
        mlp_bias=family.mlp_bias and fields.flag("mlp_bias", False),
        layer_windows=_layer_windows(fields, num_layers) if family.windows else (),
        bos_token_id=_bos(fields, generation, vocab_size),
        eos_token_ids=_eos(fields, generation, vocab_size),
        name=printable(name),
    )


def _head_dim(fields: Fields, family: Family, hidden_size: int, num_heads: int) -> int:
    if fields.has("head_dim") or family.explicit_heads:
        return fields.integer("head_dim", 2, MAX_HEAD_DIM)
    if not fields.sound("hidden_size", "num_attention_heads"):
        return 2
    if hidden_size % num_heads:
        found = (
            f"hidden_size {hidden_size} is not a multiple of num_attention_heads {num_heads} and head_dim is not set"
        )
        fields.fault("C030", found)
        return 2
    head_dim = hidden_size // num_heads
    if not 2 <= head_dim <= MAX_HEAD_DIM:
        fields.fault("C030", f"hidden_size / num_attention_heads is {head_dim}", needed=f"2..{MAX_HEAD_DIM}")
        return 2
    return head_dim


def _layer_windows(fields: Fields, num_layers: int) -> tuple[int, ...]:
    """Window of each layer, tokens; the rule is transformers' ``Qwen3Config``."""
    use = fields.flag("use_sliding_window", False)
    window = fields.integer("sliding_window", 1, MAX_POSITIONS, 0) if use and fields.has("sliding_window") else 0
    first = fields.integer("max_window_layers", 0, 1 << 20, num_layers) if window else num_layers
    kinds = fields.texts("layer_types")
    if kinds is None:
        kinds = ["sliding_attention" if layer >= first else "full_attention" for layer in range(num_layers)]
    _check_layer_types(fields, kinds, num_layers, window)
    windows = tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    return windows if any(windows) else ()


def _check_layer_types(fields: Fields, kinds: list[str], num_layers: int, window: int) -> None:
    known = ("full_attention", "sliding_attention")
    if len(kinds) != num_layers and fields.sound("num_hidden_layers"):
        fields.fault("C037", f"layer_types has {len(kinds)} entries", needed=f"{num_layers}", name="layer_types")
    strange = [kind for kind in kinds if kind not in known]
    if strange:
        fields.fault("C037", f"layer type {strange[0][:80]!r}", needed=" or ".join(known), name="layer_types")
    if "sliding_attention" in kinds and not window:
        found = "layer_types has sliding_attention, but use_sliding_window or sliding_window is not set"
        fields.fault("C030", found, needed="a window", name="sliding_window")


def _bos(fields: Fields, generation: Fields, vocab_size: int) -> int | None:
    source = generation if generation.has("bos_token_id") else fields
    ids = source.integers("bos_token_id", -1, _MAX_TOKEN_ID)
    return ids[0] if ids and 0 <= ids[0] < vocab_size else None


def _eos(fields: Fields, generation: Fields, vocab_size: int) -> tuple[int, ...]:
    source = generation if generation.has("eos_token_id") else fields
    ids = source.integers("eos_token_id", -1, _MAX_TOKEN_ID) or ()
    outside = [item for item in ids if not 0 <= item < vocab_size]
    if outside and fields.sound("vocab_size"):
        found, needed = f"eos_token_id {outside[0]} is outside the vocabulary", f"0..{vocab_size - 1}"
        source.fault("C036", found, needed=needed, name="eos_token_id")
    return tuple(dict.fromkeys(ids))
