# SPDX-License-Identifier: Apache-2.0
"""Writes config.json of DFlash, DSpark and P-EAGLE in the speculators layout, and the parts that H-Spec's shares.

The readers are `hspec_trt.checkpoint.formats.block`, `.dspark` and `.peagle`; nothing they ask for is left out.
"""

from __future__ import annotations

from typing import Final

from hspec_trt.checkpoint.json_text import JsonObject, JsonValue
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.drafters_block import DFlashConfig, DSparkConfig
from hspec_trt.config.drafters_eagle import PEagleConfig
from hspec_trt.config.rope import RopeConfig
from hspec_trt.config.target import TargetConfig

_ARCHITECTURES: Final = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_SPECULATORS_VERSION: Final = "0.5.0.dev0"


def block_json(config: DFlashConfig, target: TargetConfig) -> JsonObject:
    """The configuration of a trained DFlash or DSpark drafter; sliding layers are causal inside the block.

    Args:
        target: the model that it was trained for; gives name and architecture of the verifier.
    """
    spark = isinstance(config, DSparkConfig)
    name = "DSparkSpeculator" if spark else "DFlashSpeculator"
    found = envelope_json(config, target, model_type=config.kind, architecture=name) | {
        "aux_hidden_state_layer_ids": list(config.fused_layers),
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "sample_from_anchor": config.sample_from_anchor,
        "sliding_window_non_causal": False,
        "transformer_layer_config": transformer_json(
            config, config.windows, model_type="qwen3", attention_bias=config.attention_bias
        ),
    }
    if isinstance(config, DSparkConfig):
        found |= {
            "confidence_head_with_markov": config.confidence_with_markov,
            "enable_confidence_head": config.confidence_head,
            "markov_head_type": config.markov_type,
            "markov_rank": config.markov_rank,
        }
    return found


def peagle_json(config: PEagleConfig, target: TargetConfig) -> JsonObject:
    """The configuration of a trained P-EAGLE drafter; `target` as for `block_json`."""
    kind = "qwen3" if config.qk_norm else "llama"
    return envelope_json(config, target, model_type=config.kind, architecture="PEagleSpeculator") | {
        "eagle_aux_hidden_state_layer_ids": list(config.fused_layers),
        "fc_norm": config.fc_norm,
        "mask_token_id": config.mask_token_id,
        "norm_before_fc": config.norm_before_fc,
        "norm_before_residual": config.norm_before_residual,
        "transformer_layer_config": transformer_json(
            config, config.windows, model_type=kind, attention_bias=config.attention_bias
        ),
    }


def envelope_json(config: DrafterConfig, target: TargetConfig, *, model_type: str, architecture: str) -> JsonObject:
    """What every speculators checkpoint states."""
    method: JsonValue = {
        "accept_tolerance": 0.0,
        "proposal_type": "greedy",
        "speculative_tokens": config.num_drafts,
        "verifier_accept_k": 1,
    }
    return {
        "architectures": [architecture],
        "draft_vocab_size": config.draft_vocab_size,
        "dtype": "bfloat16",
        "speculators_config": {
            "algorithm": model_type,
            "default_proposal_method": "greedy",
            "proposal_methods": [method],
            "verifier": {"architectures": [_ARCHITECTURES[target.family]], "name_or_path": target.name},
        },
        "speculators_model_type": model_type,
        "speculators_version": _SPECULATORS_VERSION,
        "tie_word_embeddings": False,
    }


def transformer_json(
    config: DrafterConfig, windows: tuple[int, ...], *, model_type: str, attention_bias: bool
) -> JsonObject:
    """``transformer_layer_config``: the draft layers; a window makes a layer a sliding one."""
    used = [window for window in windows if window]
    kinds = ["sliding_attention" if window else "full_attention" for window in windows]
    return {
        "attention_bias": attention_bias,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "layer_types": [*kinds],
        "max_position_embeddings": config.max_position,
        "model_type": model_type,
        "num_attention_heads": config.num_heads,
        "num_hidden_layers": len(windows),
        "num_key_value_heads": config.num_kv_heads,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": rope_json(config.rope),
        "sliding_window": used[0] if used else None,
        "tie_word_embeddings": False,
        "use_sliding_window": bool(used),
        "vocab_size": config.vocab_size,
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
