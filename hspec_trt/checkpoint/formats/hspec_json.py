# SPDX-License-Identifier: Apache-2.0
"""Writes H-Spec's config.json in the published layout; `hspec_trt.checkpoint.formats.hspec` reads it back."""

from __future__ import annotations

from typing import Final

from hspec_trt.checkpoint.formats.hspec import MODEL_TYPE
from hspec_trt.checkpoint.json_text import JsonObject, JsonValue
from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.config.rope import RopeConfig
from hspec_trt.config.target import TargetConfig

_ARCHITECTURES: Final = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_SPECULATORS_VERSION: Final = "0.5.0.dev0"


def hspec_json(config: HSpecConfig, target: TargetConfig) -> JsonObject:
    """The configuration of a trained drafter.

    Args:
        target: the model that it was trained for; gives name and architecture of the verifier.
    """
    attention = config.block_pattern.count("attention")
    rope = rope_json(config.rope)
    return {
        "architectures": ["MambaAttnHybridSpeculator"],
        "attn_kv_layer_ids": list(config.attn_kv_layers),
        "attn_rope": [
            {"layer_type": "full_attention", "rope_parameters": dict(rope), "sliding_window": None}
            for _ in range(attention)
        ],
        "aux_hidden_state_layer_ids": [*sorted(set(config.attn_kv_layers))],
        "block_pattern": [*config.block_pattern],
        "block_size": config.block_size,
        "confidence_head_with_markov": config.confidence_with_markov,
        "disable_mamba_init_state_injection": not config.state_injection,
        "disable_target_kv_reuse": not config.target_kv_reuse,
        "draft_vocab_size": config.draft_vocab_size,
        "dtype": "bfloat16",
        "enable_confidence_head": config.confidence_head,
        "fc_norm": config.fc_norm,
        "latent_fusion_layer_ids": list(config.fused_layers) if config.fused_layers else None,
        "mamba_conv_kernel": config.mamba_conv_kernel,
        "mamba_d_state": config.mamba_d_state,
        "mamba_expand": 1,
        "mamba_head_dim": config.mamba_head_dim,
        "mamba_n_groups": config.mamba_n_groups,
        "mamba_num_heads": config.mamba_num_heads,
        "mamba_seed_mode": config.seed_mode,
        "markov_head_type": "vanilla",
        "markov_rank": config.markov_rank,
        "mask_token_id": config.mask_token_id,
        "sliding_window_non_causal": False,
        "sliding_window_prefix": 0,
        "speculators_config": _envelope(config, target),
        "speculators_model_type": MODEL_TYPE,
        "speculators_version": _SPECULATORS_VERSION,
        "tie_word_embeddings": False,
        "transformer_layer_config": _transformer(config, rope),
        "use_qk_norm": config.use_qk_norm,
    }


def rope_json(rope: RopeConfig) -> JsonObject:
    """``rope_parameters`` with only the keys that the type has."""
    values: JsonObject = {"rope_type": rope.rope_type, "rope_theta": rope.theta}
    if rope.partial_rotary_factor != 1.0:
        values["partial_rotary_factor"] = rope.partial_rotary_factor
    if rope.rope_type != "default":
        values["factor"] = rope.factor
    if rope.rope_type in ("llama3", "yarn"):
        values["original_max_position_embeddings"] = rope.original_max_position
    if rope.rope_type == "llama3":
        values |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.rope_type == "yarn":
        values |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow, "truncate": rope.truncate}
        if rope.attention_factor is not None:
            values["attention_factor"] = rope.attention_factor
    return values


def _envelope(config: HSpecConfig, target: TargetConfig) -> JsonObject:
    method: JsonValue = {
        "accept_tolerance": 0.0,
        "proposal_type": "greedy",
        "speculative_tokens": config.num_drafts,
        "verifier_accept_k": 1,
    }
    return {
        "algorithm": MODEL_TYPE,
        "default_proposal_method": "greedy",
        "proposal_methods": [method],
        "verifier": {"architectures": [_ARCHITECTURES[target.family]], "name_or_path": target.name},
    }


def _transformer(config: HSpecConfig, rope: JsonObject) -> JsonObject:
    windows = [window for window in config.attn_windows if window]
    kinds = ["sliding_attention" if window else "full_attention" for window in config.attn_windows]
    return {
        "attention_bias": config.attention_bias,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "layer_types": [*kinds],
        "max_position_embeddings": config.max_position,
        "model_type": "qwen3",
        "num_attention_heads": config.num_heads,
        "num_hidden_layers": len(config.attn_windows),
        "num_key_value_heads": config.num_kv_heads,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": rope,
        "sliding_window": windows[0] if windows else None,
        "tie_word_embeddings": False,
        "use_sliding_window": bool(windows),
        "vocab_size": config.vocab_size,
    }
