# SPDX-License-Identifier: Apache-2.0
"""Drafters with random weights, of a golden case's sizes with fields changed: module and graph of the same weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.drafters_eagle import Eagle3Config, PEagleConfig
from hspec_trt.modeling.block import TableDrafter
from hspec_trt.modeling.eagle3 import Eagle3
from hspec_trt.modeling.load import block_module
from tests.support.golden_drafters import Array, GoldenCase, load_case, pair_of, sources, tables_of
from tests.support.graph_engine import Pair

TABLES = ("embed_tokens.weight", "lm_head.weight", "d2t")


@dataclass(frozen=True)
class RandomDrafter:
    """A drafter as a PyTorch module, and with its target as the graph takes it."""

    case: GoldenCase
    config: DrafterConfig
    module: TableDrafter
    pair: Pair


def fill_randomly(module: torch.nn.Module, seed: int) -> None:
    """Norms near 1, matrices such that logits spread."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in module.parameters():
            noise = torch.randn(value.shape, generator=generator)
            value.copy_(1 + 0.2 * noise if value.dim() == 1 else noise * value.shape[-1] ** -0.5)


def random_drafter(name: str, seed: int = 5, **changes: object) -> RandomDrafter:
    """The drafter of a golden case with some fields of its configuration changed; the case's tables, random layers."""
    case = load_case(name)
    config = replace(case.layout().config, **changes)  # type: ignore[arg-type]
    tables = tables_of(case, config)
    serial = isinstance(config, Eagle3Config) and not isinstance(config, PEagleConfig)
    module = Eagle3(config, tables) if serial else block_module(config, tables)
    fill_randomly(module, seed)
    arrays: dict[str, Array] = {key: case.arrays[key] for key in TABLES if key in case.arrays}
    arrays |= {key: value.numpy() for key, value in module.state_dict().items()}
    pair = replace(pair_of(case), drafter=config, drafter_tensors=sources(arrays))
    return RandomDrafter(case, config, module.eval(), pair)
