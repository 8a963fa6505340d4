# SPDX-License-Identifier: Apache-2.0
"""H-Spec in its published layout, ``speculators_model_type`` "mamba_attn_hybrid".

Owns the meaning of every key of its config.json, and names and shapes of its weights. It opens no files.
"""

from __future__ import annotations

from typing import Final, TypedDict, cast, get_args

from hspec_trt.checkpoint.formats.envelope import (
    MAX_BLOCK,
    check_envelope,
    read_num_drafts,
    read_slots,
    speculative_tokens,
)
from hspec_trt.checkpoint.formats.hspec_attention import MAX_ID, check_shared_heads, read_kv_layers
from hspec_trt.checkpoint.formats.hspec_weights import hspec_weights
from hspec_trt.checkpoint.formats.layer_ids import LayerIdRule, check_fusion_width, fused_layers
from hspec_trt.checkpoint.formats.layout import DrafterLayout, DrafterSource
from hspec_trt.checkpoint.formats.transformer import read_transformer
from hspec_trt.checkpoint.formats.vocab import read_draft_vocab, read_mask_token
from hspec_trt.checkpoint.formats.weights import fit
from hspec_trt.checkpoint.hf_config import MAX_HEADS
from hspec_trt.checkpoint.json_text import JsonValue
from hspec_trt.config.drafter import HSpecConfig, SeedMode, SubLayer
from hspec_trt.contract import MAX_VOCAB_SIZE

KIND: Final = "hspec"
MODEL_TYPE: Final = "mamba_attn_hybrid"
KEYS: Final = frozenset(
    {
        "attn_kv_layer_ids",
        "attn_rope",
        "aux_hidden_state_layer_ids",
        "block_pattern",
        "block_size",
        "confidence_head_with_markov",
        "disable_mamba_init_state_injection",
        "disable_target_kv_reuse",
        "enable_confidence_head",
        "fc_norm",
        "latent_fusion_layer_ids",
        "mamba_conv_kernel",
        "mamba_d_state",
        "mamba_head_dim",
        "mamba_n_groups",
        "mamba_num_heads",
        "mamba_seed_mode",
        "mamba_state_dtype",
        "markov_head_type",
        "markov_rank",
        "mask_token_id",
        "use_qk_norm",
    }
)
TRAINING_KEYS: Final = frozenset(
    {
        "agg_mode",
        "init_k_norm",
        "init_kv_proj",
        "init_q_norm",
        "init_q_proj",
        "mamba_expand",
        "max_anchors",
        "trainable_k_norm",
        "trainable_kv_proj",
        "trainable_q_norm",
        "trainable_q_proj",
        "verifier_layer_prefix",
    }
)
"""Keys that change nothing once the drafter is trained."""
NEUTRAL: Final[dict[str, JsonValue]] = {
    "layer_mapping": None,
    "mamba_state_dtype": "float32",
    "no_mlp_layer_indices": None,
    "sample_from_anchor": False,
    "sliding_window_non_causal": False,
    "sliding_window_prefix": 0,
}
"""Options that are not built, with the value that asks for nothing (D130, D132)."""
_CODES: Final = {"mamba_state_dtype": "D130"}
_MAX_RANK: Final = 1 << 14
_MAX_STATE: Final = 1024
_MAX_CONV: Final = 16


class _Mamba(TypedDict):
    mamba_num_heads: int
    mamba_head_dim: int
    mamba_d_state: int
    mamba_n_groups: int
    mamba_conv_kernel: int
    seed_mode: SeedMode


class _Heads(TypedDict):
    markov_rank: int
    confidence_head: bool
    confidence_with_markov: bool


def read_speculators(source: DrafterSource) -> DrafterLayout:
    """A checkpoint with ``speculators_model_type`` "mamba_attn_hybrid".

    Raises:
        DrafterError, CheckpointError: all faults found, as a `FaultGroup` where there are several.
    """
    fields = source.fields
    check_envelope(source, KEYS | TRAINING_KEYS | set(NEUTRAL))
    _refuse_options(source)
    layer = fields.object("transformer_layer_config")
    transformer = read_transformer(source, layer, fewest_layers=0)
    injection = not fields.flag("disable_mamba_init_state_injection", not HSpecConfig.state_injection)
    pattern = _pattern(source, state_injection=injection)
    block_size = fields.integer("block_size", 2, MAX_BLOCK) if fields.has("block_size") else None
    slots = read_slots(source, block_size, False)
    mask = fields.integer("mask_token_id", -MAX_ID, MAX_VOCAB_SIZE) if fields.has("mask_token_id") else None
    draft_vocab = fields.integer("draft_vocab_size", 1, MAX_VOCAB_SIZE)
    vocab_size = transformer.sizes["vocab_size"]
    fused = _fused_layers(source) if injection else ()
    check_shared_heads(source, transformer, layer)
    kv_layers = read_kv_layers(source, pattern, len(transformer.windows))
    numbers = {
        "draft_vocab_size": read_draft_vocab(source, draft_vocab, vocab_size),
        "mask_token_id": read_mask_token(source, mask, vocab_size),
        "num_drafts": read_num_drafts(source, slots.num_slots, speculative_tokens(source)),
    }
    mamba, heads = _mamba(source), _heads(source)
    fc_norm = fields.flag("fc_norm", HSpecConfig.fc_norm)
    qk_norm = fields.flag("use_qk_norm", HSpecConfig.use_qk_norm)
    reuse = not fields.flag("disable_target_kv_reuse", not HSpecConfig.target_kv_reuse)
    fields.faults.raise_any()
    config = HSpecConfig(
        kind=KIND,
        **transformer.sizes,
        draft_vocab_size=numbers["draft_vocab_size"],
        mask_token_id=numbers["mask_token_id"],
        num_drafts=numbers["num_drafts"],
        block_size=slots.block_size,
        fused_layers=fused,
        block_pattern=pattern,
        attn_kv_layers=kv_layers,
        attn_windows=transformer.windows,
        attention_bias=transformer.attention_bias,
        fc_norm=fc_norm,
        use_qk_norm=qk_norm,
        state_injection=injection,
        target_kv_reuse=reuse,
        **mamba,
        **heads,
    )
    return DrafterLayout(config, fit(source, config, _wanted(source, config)), *_lines(source, config))


def _wanted(source: DrafterSource, config: HSpecConfig) -> dict[str, tuple[int, ...]]:
    """Weights that the checkpoint must hold: all, but for tables that may be the target's."""
    tables = ("embed_tokens.weight", "lm_head.weight")
    shapes = hspec_weights(config)
    return {name: shape for name, shape in shapes.items() if name in source.tensors or name not in tables}


def _lines(source: DrafterSource, config: HSpecConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if config.attn_kv_layers:
        layers = ", ".join(str(layer) for layer in config.attn_kv_layers)
        source.notes.append(f"drafter attention reads K and V of target layers (numbers from 0): {layers}")
    return tuple(source.notes), tuple(source.warnings)


def _refuse_options(source: DrafterSource) -> None:
    for name, neutral in NEUTRAL.items():
        value = source.fields.values.get(name)
        if value is not None and (type(value) is not type(neutral) or value != neutral):
            code = _CODES.get(name, "D132")
            source.fault(code, f"{name} {str(value)[:80]} is not supported", needed=str(neutral), name=name)
    if source.fields.has("quantization_config"):
        fix = "Each half keeps its own type: the target's quantisation never applies to the drafter"
        found = "the drafter is quantised"
        source.fault("D150", found, needed="bfloat16, float16 or float32", name="quantization_config", fix=fix)


def _pattern(source: DrafterSource, *, state_injection: bool) -> tuple[SubLayer, ...]:
    """The flat list of sub-layers.

    Without mamba there is nothing to seed, so ``disable_mamba_init_state_injection`` must say so; without attention
    there is nothing to read, so ``attn_kv_layer_ids`` must be ``[]``.
    """
    name, known = "block_pattern", get_args(SubLayer)
    found = source.fields.texts(name)
    if found is None:
        source.fields.fault("C033", f"{name} is missing", needed="a list of sub-layers", name=name)
        return ("mamba", "attention", "mlp")
    strange = [item for item in found if item not in known]
    if strange:
        source.fault("D132", f"sub-layer {strange[0][:80]!r}", needed=", ".join(known), name=name)
    if not found or found[-1] != "mlp":
        source.fault("D132", f"{name} ends with {found[-1:]}", needed="mlp at the end", name=name)
    if "mamba" not in found and state_injection:
        fix = "A drafter without mamba sets disable_mamba_init_state_injection"
        source.fault("D132", f"{name} has no mamba sub-layer", needed="one at least", name=name, fix=fix)
    if "attention" not in found and source.fields.values.get("attn_kv_layer_ids") != []:
        fix = "A drafter without attention sets attn_kv_layer_ids to []"
        source.fault("D132", f"{name} has no attention sub-layer", needed="one at least", name=name, fix=fix)
    return tuple(cast("SubLayer", item) for item in found if item in known)


def _fused_layers(source: DrafterSource) -> tuple[int, ...]:
    """L of the fused states; the format itself lets them default to ``aux_hidden_state_layer_ids``."""
    name = "latent_fusion_layer_ids"
    if not source.fields.has(name) and source.fields.has("aux_hidden_state_layer_ids"):
        name = "aux_hidden_state_layer_ids"
    stated = source.fields.integers(name, -MAX_ID, MAX_ID)
    layers = fused_layers(source, stated, LayerIdRule(name, "input", below_last=1))
    check_fusion_width(source, layers)
    return layers


def _mamba(source: DrafterSource) -> _Mamba:
    fields = source.fields
    heads = fields.integer("mamba_num_heads", 1, MAX_HEADS, HSpecConfig.mamba_num_heads)
    groups = fields.integer("mamba_n_groups", 1, MAX_HEADS, HSpecConfig.mamba_n_groups)
    if heads % groups:
        source.fault("D132", f"mamba_num_heads {heads} is not a multiple of mamba_n_groups {groups}")
    mode = fields.text("mamba_seed_mode", HSpecConfig.seed_mode)
    if mode not in get_args(SeedMode):
        needed = ", ".join(get_args(SeedMode))
        source.fault("D132", f"mamba_seed_mode {mode[:80]!r}", needed=needed, name="mamba_seed_mode")
    return _Mamba(
        mamba_num_heads=heads,
        mamba_head_dim=fields.integer("mamba_head_dim", 1, _MAX_STATE, HSpecConfig.mamba_head_dim),
        mamba_d_state=fields.integer("mamba_d_state", 1, _MAX_STATE, HSpecConfig.mamba_d_state),
        mamba_n_groups=groups,
        mamba_conv_kernel=fields.integer("mamba_conv_kernel", 1, _MAX_CONV, HSpecConfig.mamba_conv_kernel),
        seed_mode=cast("SeedMode", mode),
    )


def _heads(source: DrafterSource) -> _Heads:
    fields = source.fields
    rank = fields.integer("markov_rank", 0, _MAX_RANK, HSpecConfig.markov_rank)
    kind = fields.text("markov_head_type", "vanilla")
    if rank and kind != "vanilla":
        source.fault("D133", f"markov_head_type {kind[:80]!r}", needed="vanilla", name="markov_head_type")
    confidence = fields.flag("enable_confidence_head", HSpecConfig.confidence_head)
    with_markov = fields.flag("confidence_head_with_markov", HSpecConfig.confidence_with_markov)
    if confidence and with_markov and not rank:
        found = "confidence_head_with_markov without a Markov head"
        source.fault("D133", found, needed="markov_rank above 0", name="confidence_head_with_markov")
    return _Heads(markov_rank=rank, confidence_head=confidence, confidence_with_markov=with_markov)
