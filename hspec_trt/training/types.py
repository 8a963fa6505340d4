# SPDX-License-Identifier: Apache-2.0
"""The drafter types that can be trained. A new one is a configuration, its JSON form and a row here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from hspec_trt.checkpoint.formats.drafter_json import block_json, peagle_json
from hspec_trt.checkpoint.formats.hspec_json import hspec_json
from hspec_trt.checkpoint.json_text import JsonObject
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.errors import DrafterError
from hspec_trt.training import block_types, hspec_type
from hspec_trt.training.options import ShapeOptions

_COMMON: Final = frozenset(
    {"mask_token_id", "fused_layers", "intermediate_size", "block_size", "draft_vocab_size", "sliding_window"}
)
_HEADS: Final = frozenset({"markov_rank", "confidence_head"})
_HSPEC: Final = frozenset(
    {
        "kv_layers",
        "block_pattern",
        "mamba_num_heads",
        "mamba_head_dim",
        "mamba_d_state",
        "mamba_n_groups",
        "mamba_conv_kernel",
        "seed_mode",
        "fc_norm",
        "state_injection",
        "target_kv_reuse",
    }
)
_BLOCK: Final = frozenset({"num_layers", "sample_from_anchor"})


@dataclass(frozen=True)
class DrafterType:
    """What the trainer must know of a drafter.

    Attributes:
        make_config: configuration of a new drafter of this shape for a target.
        config_json: its config.json in the published layout.
        sources: draft layers and the target layers that their attention starts from.
        takes: shape options that it heeds; another one that is set is refused.
        frozen: endings of the names of parameters that are never trained.
    """

    make_config: Callable[[TargetConfig, ShapeOptions], DrafterConfig]
    config_json: Callable[[Any, TargetConfig], JsonObject]
    sources: Callable[[Any, TargetConfig], Sequence[tuple[int, int]]]
    takes: frozenset[str]
    frozen: tuple[str, ...] = ()

    def config(self, target: TargetConfig, shape: ShapeOptions) -> DrafterConfig:
        """The configuration of a new drafter.

        Raises:
            DrafterError: D223 where an option is set that this drafter does not heed; else as `make_config`.
        """
        strange = [
            field.name
            for field in fields(shape)
            if field.name not in self.takes and getattr(shape, field.name) != field.default
        ]
        if strange:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in strange)
            raise DrafterError("D223", f"{flags} for a drafter that does not have it", fix="Leave it out")
        return self.make_config(target, shape)


DRAFTER_TYPES: Final[dict[str, DrafterType]] = {
    "hspec": DrafterType(
        hspec_type.make_config,
        hspec_json,
        hspec_type.sources,
        _COMMON | _HEADS | _HSPEC,
        frozen=("q_norm.weight", "k_norm.weight"),
    ),
    "dflash": DrafterType(block_types.dflash_config, block_json, block_types.sources, _COMMON | _BLOCK),
    "dspark": DrafterType(
        block_types.dspark_config, block_json, block_types.sources, _COMMON | _BLOCK | _HEADS | {"markov_type"}
    ),
    "peagle": DrafterType(
        block_types.peagle_config,
        peagle_json,
        block_types.sources,
        _COMMON | {"num_layers", "fc_norm", "train_embedding"},
    ),
}
