# SPDX-License-Identifier: Apache-2.0
"""The drafters, one module each; `drafter_for` finds the one of a configuration."""

from __future__ import annotations

from hspec_trt.config.drafter import DrafterConfig, HSpecConfig
from hspec_trt.errors import BuildError
from hspec_trt.graph.drafters.frame import DraftContext, Drafter, draft_context
from hspec_trt.graph.drafters.hspec import HSpec


def drafter_for(config: DrafterConfig) -> Drafter:
    """The drafter that emits `config`.

    Raises:
        BuildError: B030, no drafter of that kind is built in.
    """
    if isinstance(config, HSpecConfig):
        return HSpec(config)
    raise BuildError("B030", f"drafter kind {config.kind!r}", needed="one of: hspec")


__all__ = ["DraftContext", "Drafter", "draft_context", "drafter_for"]
