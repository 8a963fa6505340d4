# SPDX-License-Identifier: Apache-2.0
"""The golden cases of H-Spec as configurations and tensors."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.config.rope import RopeConfig
from hspec_trt.config.target import TargetConfig
from tests.support.graph_engine import ArraySource, Pair

GOLDEN = Path(__file__).parents[1] / "golden"
HSPEC_CASES = ("hspec_qwen3", "hspec_llama", "hspec_noseed", "hspec_nokv", "hspec_fullattn")


def _rope(parameters: dict) -> RopeConfig:
    return RopeConfig(
        rope_type=parameters["rope_type"],
        theta=parameters["rope_theta"],
        factor=parameters.get("factor", 1.0),
        original_max_position=parameters.get("original_max_position_embeddings", 0),
        low_freq_factor=parameters.get("low_freq_factor", 1.0),
        high_freq_factor=parameters.get("high_freq_factor", 4.0),
    )


def _target(config: dict) -> TargetConfig:
    return TargetConfig(
        family=config["model_type"],
        vocab_size=config["vocab_size"],
        embedding_rows=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        rms_norm_eps=config["rms_norm_eps"],
        rope=_rope(config["rope_parameters"]),
        max_position=config["max_position_embeddings"],
        tie_word_embeddings=config["tie_word_embeddings"],
    )


def _hspec(config: dict) -> HSpecConfig:
    layer = config["transformer_layer_config"]
    windows = tuple(layer["sliding_window"] if kind == "sliding_attention" else 0 for kind in layer["layer_types"])
    return HSpecConfig(
        kind="hspec",
        vocab_size=layer["vocab_size"],
        draft_vocab_size=config["draft_vocab_size"],
        hidden_size=layer["hidden_size"],
        intermediate_size=layer["intermediate_size"],
        num_heads=layer["num_attention_heads"],
        num_kv_heads=layer["num_key_value_heads"],
        head_dim=layer["head_dim"],
        rms_norm_eps=layer["rms_norm_eps"],
        rope=_rope(layer["rope_parameters"]),
        block_size=config["block_size"],
        num_drafts=config["speculators_config"]["proposal_methods"][0]["speculative_tokens"],
        mask_token_id=config["mask_token_id"],
        fused_layers=tuple(config["latent_fusion_layer_ids"]),
        max_position=layer["max_position_embeddings"],
        block_pattern=tuple(config["block_pattern"]),
        attn_kv_layers=tuple(config["attn_kv_layer_ids"]),
        attn_windows=windows,
        mamba_num_heads=config["mamba_num_heads"],
        mamba_head_dim=config["mamba_head_dim"],
        mamba_d_state=config["mamba_d_state"],
        mamba_n_groups=config["mamba_n_groups"],
        mamba_conv_kernel=config["mamba_conv_kernel"],
        seed_mode=config["mamba_seed_mode"],
        fc_norm=config["fc_norm"],
        use_qk_norm=config["use_qk_norm"],
        markov_rank=config["markov_rank"],
        confidence_head=config["enable_confidence_head"],
        confidence_with_markov=config["confidence_head_with_markov"],
        state_injection=not config["disable_mamba_init_state_injection"],
        target_kv_reuse=not config["disable_target_kv_reuse"],
    )


def _tensors(path: Path) -> dict[str, ArraySource]:
    return {name: ArraySource(values) for name, values in load_file(path).items()}


@cache
def hspec_pair(case: str) -> Pair:
    folder = GOLDEN / case
    target, drafter = (json.loads((folder / part / "config.json").read_text()) for part in ("target", "drafter"))
    return Pair(
        _target(target),
        _tensors(folder / "target" / "model.safetensors"),
        _hspec(drafter),
        _tensors(folder / "drafter" / "model.safetensors"),
    )


@cache
def golden_vectors(case: str) -> dict[str, np.ndarray]:
    return load_file(GOLDEN / case / "vectors.safetensors")


def golden_trace(case: str) -> list[dict]:
    return json.loads((GOLDEN / case / "trace.json").read_text())
