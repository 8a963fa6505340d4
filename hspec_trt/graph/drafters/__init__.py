# SPDX-License-Identifier: Apache-2.0
"""The drafters, one module each; `drafter_for` finds the one of a configuration."""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.config.drafter import DrafterConfig, HSpecConfig
from hspec_trt.errors import BuildError
from hspec_trt.graph.drafters.frame import DraftContext, Drafter, draft_context, no_drafts
from hspec_trt.graph.drafters.hspec import HSpec


class NoDrafter:
    """Stands in where an engine has no drafter."""

    def draft(self, step: DraftContext) -> ir.Value:
        """int32 [D, G] of -1."""
        return no_drafts(step.scope.builder, step.draft_rows, step.num_drafts)


def drafter_for(config: DrafterConfig | None) -> Drafter:
    """The drafter that emits `config`; None proposes nothing.

    Raises:
        BuildError: B030, no drafter of that kind is built in.
    """
    if config is None:
        return NoDrafter()
    if isinstance(config, HSpecConfig):
        return HSpec(config)
    raise BuildError("B030", f"drafter kind {config.kind!r}", needed="one of: hspec")


__all__ = ["DraftContext", "Drafter", "draft_context", "drafter_for", "no_drafts"]
