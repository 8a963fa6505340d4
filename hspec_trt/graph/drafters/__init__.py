# SPDX-License-Identifier: Apache-2.0
"""The drafters, one module each; `drafter_for` finds the one of a configuration."""

from __future__ import annotations

from hspec_trt.config.drafter import DrafterConfig, HSpecConfig
from hspec_trt.config.drafters_block import DFlashConfig, DSparkConfig
from hspec_trt.config.drafters_eagle import Eagle3Config, PEagleConfig
from hspec_trt.errors import BuildError
from hspec_trt.graph.drafters.dflash import DFlash
from hspec_trt.graph.drafters.dspark import DSpark
from hspec_trt.graph.drafters.eagle3 import Eagle3
from hspec_trt.graph.drafters.frame import DraftContext, Drafter, DraftOutputs, Pages, draft_context, no_drafts
from hspec_trt.graph.drafters.hspec import HSpec
from hspec_trt.graph.drafters.peagle import PEagle


class NoDrafter:
    """Stands in where an engine has no drafter."""

    def begin(self, step: DraftContext) -> Pages:
        """Nothing to cache."""
        return ()

    def draft(self, step: DraftContext) -> DraftOutputs:
        """No drafts."""
        return no_drafts(step)


def drafter_for(config: DrafterConfig | None) -> Drafter:
    """The drafter that emits `config`; None proposes nothing.

    Raises:
        BuildError: B030, no drafter of that kind is built in.
    """
    match config:
        case None:
            return NoDrafter()
        case HSpecConfig():
            return HSpec(config)
        case DSparkConfig():
            return DSpark(config)
        case DFlashConfig():
            return DFlash(config)
        case PEagleConfig():
            return PEagle(config)
        case Eagle3Config():
            return Eagle3(config)
    known = "hspec, dflash, dspark, peagle, eagle3"
    raise BuildError("B030", f"drafter kind {config.kind!r}", needed=f"one of: {known}")


__all__ = ["DraftContext", "DraftOutputs", "Drafter", "Pages", "draft_context", "drafter_for", "no_drafts"]
