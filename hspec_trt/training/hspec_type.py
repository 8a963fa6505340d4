# SPDX-License-Identifier: Apache-2.0
"""H-Spec as a drafter type of the trainer: its configuration, its warm start and what is frozen."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hspec_trt.checkpoint.formats.hspec_json import hspec_json
from hspec_trt.checkpoint.json_text import JsonObject
from hspec_trt.config.drafter import DrafterConfig, HSpecConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.errors import DrafterError, Faults
from hspec_trt.modeling.block import SharedTables
from hspec_trt.modeling.hspec import HSpecModel
from hspec_trt.training.options import ShapeOptions

_COPIED = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight")
_FROZEN = ("q_norm.weight", "k_norm.weight")
INIT_STD = 0.02


def make_config(target: TargetConfig, shape: ShapeOptions) -> HSpecConfig:
    """The configuration of a new drafter for a target.

    Raises:
        DrafterError: D100, D101, D104, D122 where layers or mask token do not fit the target; all at once.
    """
    _check(target, shape)
    attention = shape.block_pattern.count("attention")
    return HSpecConfig(
        kind="hspec",
        vocab_size=target.vocab_size,
        draft_vocab_size=shape.draft_vocab_size or target.vocab_size,
        hidden_size=target.hidden_size,
        intermediate_size=shape.intermediate_size or target.intermediate_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        rms_norm_eps=target.rms_norm_eps,
        rope=target.rope,
        block_size=shape.block_size,
        num_drafts=shape.block_size - 1,
        mask_token_id=shape.mask_token_id,
        fused_layers=shape.fused_layers if shape.state_injection else (),
        max_position=target.max_position,
        block_pattern=shape.block_pattern,
        attn_kv_layers=shape.kv_layers,
        attn_windows=(shape.sliding_window,) * attention,
        mamba_num_heads=shape.mamba_num_heads,
        mamba_head_dim=shape.mamba_head_dim,
        mamba_d_state=shape.mamba_d_state,
        mamba_n_groups=shape.mamba_n_groups,
        mamba_conv_kernel=shape.mamba_conv_kernel,
        seed_mode=shape.seed_mode,
        fc_norm=shape.fc_norm,
        use_qk_norm=target.qk_norm,
        attention_bias=target.attention_bias,
        markov_rank=shape.markov_rank,
        confidence_head=shape.confidence_head,
        confidence_with_markov=shape.confidence_head and shape.markov_rank > 0,
        state_injection=shape.state_injection,
        target_kv_reuse=shape.target_kv_reuse,
    )


def _check(target: TargetConfig, shape: ShapeOptions) -> None:
    faults, attention = Faults(), shape.block_pattern.count("attention")
    if len(shape.kv_layers) != attention:
        found = f"{len(shape.kv_layers)} K/V layers for {attention} attention sub-layers"
        faults.add(DrafterError("D104", found, needed="one each", where="--kv-layers"))
    if shape.state_injection and not shape.fused_layers:
        faults.add(DrafterError("D100", "no layers to fuse", needed="layers of the target", where="--fused-layers"))
    last = target.num_layers - 1
    for where, layers in (("--kv-layers", shape.kv_layers), ("--fused-layers", shape.fused_layers)):
        wrong = [layer for layer in layers if not 0 <= layer <= last]
        if wrong:
            found = f"layer {wrong[0]} of a {target.num_layers}-layer target"
            faults.add(DrafterError("D101", found, needed=f"0..{last}", where=where))
    if not 0 <= shape.mask_token_id < target.vocab_size:
        found, needed = f"mask token {shape.mask_token_id}", f"0..{target.vocab_size - 1}"
        faults.add(DrafterError("D122", found, needed=needed, where="--mask-token-id"))
    faults.raise_any()


def kv_layers(config: DrafterConfig) -> tuple[int, ...]:
    """Target layers whose K and V the drafter reads, rising."""
    return tuple(sorted(set(_own(config).attn_kv_layers)))


def causal(config: DrafterConfig) -> bool:
    """True where every attention sub-layer slides."""
    return all(_own(config).attn_windows)


def config_json(config: DrafterConfig, target: TargetConfig) -> JsonObject:
    """config.json in the published layout."""
    return hspec_json(_own(config), target)


def make_model(
    config: DrafterConfig, tables: SharedTables, target_weights: Mapping[str, Tensor], seed: int
) -> HSpecModel:
    """A drafter at its start: attention and last norm from the target, the rest random; q and k norms frozen.

    Args:
        target_weights: by canonical name.
    """
    generator = torch.Generator().manual_seed(seed)
    model = HSpecModel(_own(config), tables)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, INIT_STD, generator=generator)
            elif name.endswith(".bias"):
                parameter.zero_()
        if model.markov_head is not None:
            model.markov_head.markov_w2.weight.zero_()
        model.norm.weight.copy_(target_weights["model.norm.weight"])
        _warm_start(model, target_weights)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.endswith(_FROZEN))
    return model


def _own(config: DrafterConfig) -> HSpecConfig:
    if not isinstance(config, HSpecConfig):
        raise TypeError(f"an H-Spec configuration is needed, got {type(config).__name__}")
    return config


def _warm_start(model: HSpecModel, target_weights: Mapping[str, Tensor]) -> None:
    """Each attention sub-layer begins as that of the target layer whose K and V it reads."""
    sources = iter(model.config.attn_kv_layers)
    own = dict(model.named_parameters())
    for index, kind in enumerate(model.config.block_pattern):
        if kind != "attention":
            continue
        prefix = f"model.layers.{next(sources)}."
        own[f"layers.{index}.input_layernorm.weight"].copy_(target_weights[f"{prefix}input_layernorm.weight"])
        for name in (*_COPIED, *(part.replace("weight", "bias") for part in _COPIED), *_FROZEN):
            parameter = own.get(f"layers.{index}.self_attn.{name}")
            if parameter is not None:
                parameter.copy_(target_weights[f"{prefix}self_attn.{name}"])
