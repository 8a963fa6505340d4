# SPDX-License-Identifier: Apache-2.0
"""H-Spec as a drafter type of the trainer: its configuration and where its attention starts from."""

from __future__ import annotations

from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.errors import DrafterError, Faults
from hspec_trt.training.options import ShapeOptions
from hspec_trt.training.start import check_shape, need_fused_layers, shared_fields


def make_config(target: TargetConfig, shape: ShapeOptions) -> HSpecConfig:
    """The configuration of a new drafter for a target.

    Raises:
        DrafterError: D100, D101, D104, D122 where layers or mask token do not fit the target; all at once.
    """
    _check(target, shape)
    attention = shape.block_pattern.count("attention")
    return HSpecConfig(
        kind="hspec",
        **shared_fields(target, shape),
        block_size=shape.block_size,
        num_drafts=shape.block_size - 1,
        fused_layers=shape.fused_layers if shape.state_injection else (),
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
    with faults.collect():
        if shape.state_injection:
            need_fused_layers(shape)
    with faults.collect():
        check_shape(target, shape)
    faults.raise_any()


def sources(config: HSpecConfig, _target: TargetConfig) -> tuple[tuple[int, int], ...]:
    """Each attention sub-layer begins as that of the target layer whose K and V it reads."""
    places = [index for index, kind in enumerate(config.block_pattern) if kind == "attention"]
    return tuple(zip(places, config.attn_kv_layers, strict=True))
