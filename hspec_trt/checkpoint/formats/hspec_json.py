# SPDX-License-Identifier: Apache-2.0
"""Writes H-Spec's config.json in the published layout; `hspec_trt.checkpoint.formats.hspec` reads it back."""

from __future__ import annotations

from hspec_trt.checkpoint.formats.drafter_json import envelope_json, rope_json, transformer_json
from hspec_trt.checkpoint.formats.hspec import MODEL_TYPE
from hspec_trt.checkpoint.json_text import JsonObject
from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.config.target import TargetConfig


def hspec_json(config: HSpecConfig, target: TargetConfig) -> JsonObject:
    """The configuration of a trained drafter.

    Args:
        target: the model that it was trained for; gives name and architecture of the verifier.
    """
    attention = config.block_pattern.count("attention")
    rope = rope_json(config.rope)
    return envelope_json(config, target, model_type=MODEL_TYPE, architecture="MambaAttnHybridSpeculator") | {
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
        "transformer_layer_config": transformer_json(
            config, config.attn_windows, model_type="qwen3", attention_bias=config.attention_bias
        ),
        "use_qk_norm": config.use_qk_norm,
    }
