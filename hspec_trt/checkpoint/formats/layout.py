# SPDX-License-Identifier: Apache-2.0
"""What a format adapter gets and gives. Knows no format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hspec_trt.checkpoint.fields import Fields
from hspec_trt.checkpoint.tensors import TensorSource
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.drafter_options import DrafterOptions
from hspec_trt.config.target import TargetConfig
from hspec_trt.errors import DrafterError


@dataclass
class DrafterSource:
    """A drafter checkpoint as found, and what the user says about it.

    Attributes:
        fields: config.json; collects the faults.
        tensors: stored tensors by the name in the file.
        notes: lines that a build prints.
        warnings: lines that warn.
    """

    fields: Fields
    tensors: Mapping[str, TensorSource]
    target: TargetConfig
    options: DrafterOptions = field(default_factory=DrafterOptions)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def fault(self, code: str, found: str, *, needed: str = "", fix: str = "", name: str = "") -> None:
        """Note a fault of the drafter's contract (D...)."""
        where = f"{self.fields.where}: {name}" if name else self.fields.where
        self.fields.faults.add(DrafterError(code, found, needed=needed, where=where, fix=fix))


@dataclass(frozen=True)
class DrafterLayout:
    """A drafter checkpoint as understood.

    Attributes:
        tensors: weights by their name in the speculators format; ``embed_tokens.weight`` and ``lm_head.weight`` are
            absent where the target's are used.
    """

    config: DrafterConfig
    tensors: Mapping[str, TensorSource]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
