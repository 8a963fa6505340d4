# SPDX-License-Identifier: Apache-2.0
"""A drafter at its start: random where it must be, warm where the target has something alike, the rest frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import torch
from torch import Tensor

from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.rope import RopeConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.errors import DrafterError, Faults
from hspec_trt.modeling.block import BlockDrafter, SharedTables
from hspec_trt.modeling.load import block_module
from hspec_trt.training.options import ShapeOptions

INIT_STD = 0.02
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
_HEAD_NORMS = ("q_norm", "k_norm")


class SharedFields(TypedDict):
    """Fields of every drafter's configuration that follow alike from target and shape."""

    vocab_size: int
    draft_vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    mask_token_id: int
    max_position: int
    attention_bias: bool


def shared_fields(target: TargetConfig, shape: ShapeOptions) -> SharedFields:
    """Those of a new drafter for a target."""
    return SharedFields(
        vocab_size=target.vocab_size,
        draft_vocab_size=shape.draft_vocab_size or target.vocab_size,
        hidden_size=target.hidden_size,
        intermediate_size=shape.intermediate_size or target.intermediate_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        rms_norm_eps=target.rms_norm_eps,
        rope=target.rope,
        mask_token_id=shape.mask_token_id,
        max_position=target.max_position,
        attention_bias=target.attention_bias,
    )


def check_shape(target: TargetConfig, shape: ShapeOptions) -> None:
    """Refuse layers, mask token and vocabulary that do not fit the target.

    Raises:
        DrafterError: D101, D122, D224; all at once.
    """
    faults, last = Faults(), target.num_layers - 1
    for where, layers in (("--kv-layers", shape.kv_layers), ("--fused-layers", shape.fused_layers)):
        wrong = [layer for layer in layers if not 0 <= layer <= last]
        if wrong:
            found = f"layer {wrong[0]} of a {target.num_layers}-layer target"
            faults.add(DrafterError("D101", found, needed=f"0..{last}", where=where))
    if not 0 <= shape.mask_token_id < target.vocab_size:
        found, needed = f"mask token {shape.mask_token_id}", f"0..{target.vocab_size - 1}"
        faults.add(DrafterError("D122", found, needed=needed, where="--mask-token-id"))
    if shape.draft_vocab_size is not None and shape.draft_vocab_size > target.vocab_size:
        found, needed = f"{shape.draft_vocab_size} tokens that can be drafted", f"1..{target.vocab_size}"
        faults.add(DrafterError("D224", found, needed=needed, where="--draft-vocab-size"))
    faults.raise_any()


def need_fused_layers(shape: ShapeOptions) -> None:
    """Refuse a shape that fuses nothing.

    Raises:
        DrafterError: D100.
    """
    if not shape.fused_layers:
        raise DrafterError("D100", "no layers to fuse", needed="layers of the target", where="--fused-layers")


def spread_layers(num_layers: int, target: TargetConfig) -> tuple[int, ...]:
    """Target layers that `num_layers` draft layers start from: evenly from the second to the third from the end."""
    last = max(1, target.num_layers - 3)
    if num_layers == 1:
        return (target.num_layers // 2,)
    return tuple(round(1 + index * (last - 1) / (num_layers - 1)) for index in range(num_layers))


def make_model(
    config: DrafterConfig,
    tables: SharedTables,
    weights: Mapping[str, Tensor],
    *,
    sources: Sequence[tuple[int, int]],
    frozen: tuple[str, ...],
    seed: int,
) -> BlockDrafter:
    """The module before its first step.

    Args:
        weights: the target's, by canonical name.
        sources: draft layer and the target layer whose attention it starts from.
        frozen: endings of the names of parameters that stay.
    """
    model = block_module(config, tables)
    own = dict(model.named_parameters())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in own.items():
            if name == "embed_tokens.weight":
                continue
            if parameter.dim() > 1:
                parameter.normal_(0.0, INIT_STD, generator=generator)
            elif name.endswith(".bias"):
                parameter.zero_()
        if model.markov_head is not None:
            model.markov_head.markov_w2.weight.zero_()
        own["norm.weight"].copy_(weights["model.norm.weight"])
        for layer, source in sources:
            _copy_attention(own, f"layers.{layer}.", weights, f"model.layers.{source}.")
    for name, parameter in own.items():
        parameter.requires_grad_(not name.endswith(frozen))
    return model


def _copy_attention(own: Mapping[str, Tensor], layer: str, weights: Mapping[str, Tensor], source: str) -> None:
    """Give a draft layer the attention of a target layer.

    A layer that reads the embedding beside the stream takes the weights for the stream's half, which comes last.
    """
    norm = own.get(f"{layer}hidden_norm.weight", own[f"{layer}input_layernorm.weight"])
    norm.copy_(weights[f"{source}input_layernorm.weight"])
    names = [f"self_attn.{part}.{kind}" for part in _PROJECTIONS for kind in ("weight", "bias")]
    for name in (*names, *(f"self_attn.{part}.weight" for part in _HEAD_NORMS)):
        parameter, given = own.get(layer + name), weights.get(source + name)
        if parameter is not None and given is not None:
            parameter[..., -given.shape[-1] :].copy_(given)
