# SPDX-License-Identifier: Apache-2.0
"""The drafter types that can be trained. A new one is a module like `hspec_trt.training.hspec_type` and a row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from hspec_trt.checkpoint.json_text import JsonObject
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.modeling.block import BlockDrafter, SharedTables
from hspec_trt.training import hspec_type
from hspec_trt.training.options import ShapeOptions


@dataclass(frozen=True)
class DrafterType:
    """What the trainer must know of a drafter.

    Attributes:
        make_config: configuration of a new drafter of this shape for a target.
        make_model: the module at its start: warm-started, frozen parts marked. Arguments: configuration, the target's
            tables, the target's weights by canonical name, seed.
        kv_layers: target layers whose K and V it reads.
        all_rows: it needs fused states of every token, not only of the anchor's predecessor.
        config_json: its config.json in the published layout.
        causal: the block's first slots do not depend on the later ones.
    """

    make_config: Callable[[TargetConfig, ShapeOptions], DrafterConfig]
    make_model: Callable[[DrafterConfig, SharedTables, Mapping[str, Tensor], int], BlockDrafter]
    kv_layers: Callable[[DrafterConfig], tuple[int, ...]]
    config_json: Callable[[DrafterConfig, TargetConfig], JsonObject]
    causal: Callable[[DrafterConfig], bool]
    all_rows: bool = False


DRAFTER_TYPES: Final[dict[str, DrafterType]] = {
    "hspec": DrafterType(
        hspec_type.make_config,
        hspec_type.make_model,
        hspec_type.kv_layers,
        hspec_type.config_json,
        hspec_type.causal,
    ),
}
