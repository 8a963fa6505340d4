# SPDX-License-Identifier: Apache-2.0
"""DFlash, DSpark and P-EAGLE as drafter types of the trainer: configurations, and where their attention starts from."""

from __future__ import annotations

from hspec_trt.config.drafters_block import DFlashConfig, DSparkConfig
from hspec_trt.config.drafters_eagle import PEagleConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.training.options import ShapeOptions
from hspec_trt.training.start import SharedFields, check_shape, need_fused_layers, shared_fields, spread_layers


class _Common(SharedFields):
    fused_layers: tuple[int, ...]
    windows: tuple[int, ...]


class _Block(_Common):
    block_size: int
    num_drafts: int
    causal: tuple[bool, ...]
    sample_from_anchor: bool


def dflash_config(target: TargetConfig, shape: ShapeOptions) -> DFlashConfig:
    """A new DFlash drafter; sliding layers are causal inside the block, full ones bidirectional.

    Raises:
        DrafterError: D100, D101, D122 where layers or mask token do not fit the target.
    """
    return DFlashConfig(kind="dflash", **_block(target, shape))


def dspark_config(target: TargetConfig, shape: ShapeOptions) -> DSparkConfig:
    """A new DSpark drafter; raises as `dflash_config`."""
    return DSparkConfig(
        kind="dspark",
        **_block(target, shape),
        markov_rank=shape.markov_rank,
        markov_type=shape.markov_type,
        confidence_head=shape.confidence_head,
        confidence_with_markov=shape.confidence_head and shape.markov_rank > 0,
    )


def peagle_config(target: TargetConfig, shape: ShapeOptions) -> PEagleConfig:
    """A new P-EAGLE drafter of the target's layer type; raises as `dflash_config`."""
    drafts = shape.block_size - 1
    return PEagleConfig(
        kind="peagle",
        **_common(target, shape),
        block_size=drafts,
        num_drafts=drafts,
        qk_norm=target.qk_norm,
        norm_before_fc=not shape.fc_norm,
        fc_norm=shape.fc_norm,
        own_embedding=True,
    )


def sources(config: DFlashConfig | PEagleConfig, target: TargetConfig) -> tuple[tuple[int, int], ...]:
    """Draft layers begin as target layers spread over its depth."""
    return tuple(enumerate(spread_layers(len(config.windows), target)))


def _block(target: TargetConfig, shape: ShapeOptions) -> _Block:
    return _Block(
        **_common(target, shape),
        block_size=shape.block_size,
        num_drafts=shape.block_size - (not shape.sample_from_anchor),
        causal=(shape.sliding_window > 0,) * shape.num_layers,
        sample_from_anchor=shape.sample_from_anchor,
    )


def _common(target: TargetConfig, shape: ShapeOptions) -> _Common:
    need_fused_layers(shape)
    check_shape(target, shape)
    return _Common(
        **shared_fields(target, shape),
        fused_layers=shape.fused_layers,
        windows=(shape.sliding_window,) * shape.num_layers,
    )
