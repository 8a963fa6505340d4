# SPDX-License-Identifier: Apache-2.0
"""Drafters with random weights, of the published recipes' shapes for a target of any size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.checkpoints import RandomTensor
from hspec_trt.bundle import WeightSource, write_weights
from hspec_trt.checkpoint.formats.drafter_json import envelope_json, transformer_json
from hspec_trt.checkpoint.json_text import JsonObject
from hspec_trt.checkpoint.target_checkpoint import TargetCheckpoint
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.drafters_eagle import NO_MASK_TOKEN, Eagle3Config, PEagleConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.dtypes import BOOL, INT64, DType
from hspec_trt.modeling.block import SharedTables
from hspec_trt.modeling.eagle3 import Eagle3
from hspec_trt.modeling.load import block_module
from hspec_trt.training.export import vocab_tables
from hspec_trt.training.options import ShapeOptions
from hspec_trt.training.types import DRAFTER_TYPES

KINDS: Final = ("hspec", "dflash", "dspark", "peagle", "eagle3")
DRAFT_VOCAB: Final = 32000
"""Of every published recipe."""
_READ, _FUSED, _LAYERS = (17, 25, 34), (1, 9, 17, 25, 34), 36
"""Layers that the released H-Spec drafters read and fuse, of targets with 36 layers."""


@dataclass(frozen=True)
class GivenTensor:
    """A tensor with these values."""

    name: str
    values: NDArray[np.generic]
    dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the values."""
        return self.values.shape

    def produce(self) -> NDArray[np.generic]:
        """The values."""
        return self.values


def random_drafter(folder: Path, target: TargetCheckpoint, kind: str) -> Path:
    """Write a drafter of one kind (`KINDS`) with a draft vocabulary of `DRAFT_VOCAB`, unless it is there already.

    Layers lie where the published ones lie, in proportion; targets of few layers have some twice or not at all.
    """
    if (folder / "config.json").exists():
        return folder
    sizes = target.config
    config, text = _eagle3(sizes) if kind == "eagle3" else _trained(sizes, kind)
    folder.mkdir(parents=True, exist_ok=True)
    weights: list[WeightSource] = [RandomTensor(name, dims) for name, dims in _shapes(config).items()]
    if config.reduced_vocab:
        weights += _vocab_tables(config)
    write_weights(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(text, indent=2))
    return folder


def _trained(target: TargetConfig, kind: str) -> tuple[DrafterConfig, JsonObject]:
    drafter = DRAFTER_TYPES[kind]
    config = drafter.config(target, _shape(target, kind))
    return config, drafter.config_json(config, target)


def _shape(target: TargetConfig, kind: str) -> ShapeOptions:
    last, vocab = target.num_layers - 1, target.vocab_size
    shape = ShapeOptions(vocab - 1, fused_layers=_spread(target), draft_vocab_size=min(DRAFT_VOCAB, vocab))
    if kind != "hspec":
        return shape
    fused = tuple(sorted({layer * last // (_LAYERS - 1) for layer in _FUSED}))
    return replace(shape, kv_layers=tuple(layer * last // (_LAYERS - 1) for layer in _READ), fused_layers=fused)


def _spread(target: TargetConfig) -> tuple[int, ...]:
    """Layers 2, N / 2 and N - 3, as far as there are so many."""
    layers = target.num_layers
    return tuple(sorted({min(max(layer, 0), layers - 1) for layer in (2, layers // 2, layers - 3)}))


def _shapes(config: DrafterConfig) -> Mapping[str, tuple[int, ...]]:
    """What a module of this configuration holds; nothing is allocated."""
    with torch.device("meta"):
        table = torch.empty(config.vocab_size, config.hidden_size)
        tables = SharedTables(table, table[: config.draft_vocab_size], torch.arange(config.draft_vocab_size))
        if isinstance(config, Eagle3Config) and not isinstance(config, PEagleConfig):
            model: nn.Module = Eagle3(config, tables)
        else:
            model = block_module(config, tables)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def _vocab_tables(config: DrafterConfig) -> list[GivenTensor]:
    """``d2t`` and ``t2d`` of target ids that are spread evenly."""
    target_ids = torch.arange(config.draft_vocab_size) * config.vocab_size // config.draft_vocab_size
    tables = vocab_tables(target_ids, config.vocab_size)
    return [GivenTensor(name, tables[name].numpy(), dtype) for name, dtype in (("d2t", INT64), ("t2d", BOOL))]


def _eagle3(target: TargetConfig) -> tuple[DrafterConfig, JsonObject]:
    """One full-attention layer, five drafts: EAGLE-3 is not among the types that the trainer knows."""
    config = Eagle3Config(
        kind="eagle3",
        vocab_size=target.vocab_size,
        draft_vocab_size=min(DRAFT_VOCAB, target.vocab_size),
        hidden_size=target.hidden_size,
        intermediate_size=target.intermediate_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        rms_norm_eps=target.rms_norm_eps,
        rope=target.rope,
        block_size=1,
        num_drafts=5,
        mask_token_id=NO_MASK_TOKEN,
        fused_layers=_spread(target),
        max_position=target.max_position,
        windows=(0,),
        qk_norm=target.qk_norm,
    )
    layers = transformer_json(config, config.windows, model_type="qwen3", attention_bias=config.attention_bias)
    return config, envelope_json(config, target, model_type="eagle3", architecture="Eagle3DraftModel") | {
        "eagle_aux_hidden_state_layer_ids": list(config.fused_layers),
        "fc_norm": config.fc_norm,
        "norm_before_fc": config.norm_before_fc,
        "norm_before_residual": config.norm_before_residual,
        "norm_output": config.norm_output,
        "transformer_layer_config": layers,
    }
