# SPDX-License-Identifier: Apache-2.0
"""What a user may say about a drafter checkpoint that does not say it itself, or says it wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LayerIdBase = Literal["input", "output"]
"""What a layer id names: "input" is the input of layer i, ``h^(i)``; "output" is the output of layer i, ``h^(i+1)``."""


@dataclass(frozen=True)
class DrafterOptions:
    """Answers that win over the checkpoint; None leaves the question to it.

    Attributes:
        format: name of the checkpoint format (``--drafter-format``); a contradiction with the tensors is an error.
        layer_ids: target layers that are fused, counted as `layer_id_base` says.
        layer_id_base: convention of `layer_ids`, or of the ids in the checkpoint.
        mask_token_id: token of the mask slots.
        sample_from_anchor: slot layout of a block drafter.
        norm_before_residual: residual of an EAGLE drafter's first layer.
        num_drafts: drafts a step.
    """

    format: str | None = None
    layer_ids: tuple[int, ...] | None = None
    layer_id_base: LayerIdBase | None = None
    mask_token_id: int | None = None
    sample_from_anchor: bool | None = None
    norm_before_residual: bool | None = None
    num_drafts: int | None = None
