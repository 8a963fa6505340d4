# SPDX-License-Identifier: Apache-2.0
"""DFlash and DSpark: block drafters with a K/V cache of their own, filled from fused target states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hspec_trt.config.drafter import DrafterConfig

MarkovType = Literal["vanilla", "gated", "rnn"]
MARKOV_TYPES: tuple[MarkovType, ...] = ("vanilla", "gated", "rnn")
WindowRule = Literal["serving", "training"]
"""Edge of a sliding window over the context, for slot k of a block anchored at p: "serving" is the usual one per
query, ``t > p + k - W``; "training" is one for the block, ``t >= p - W``."""


@dataclass(frozen=True)
class DFlashConfig(DrafterConfig):
    """DFlash: one pass over [anchor, mask, ...] against K and V projected from fused target states.

    Attributes:
        windows: per draft layer, sliding window in tokens; 0 is full attention.
        causal: per draft layer, whether a slot sees only the block slots up to itself.
        sample_from_anchor: True: slot k predicts position p + k + 1 and all B slots are used; False: slot k predicts
            its own position p + k and slot 0 is not used.
        attention_bias: bias on q, k, v and o.
        mask_embedding: the checkpoint has a vector of its own for the mask slots (tensor ``mask_embedding``).
    """

    windows: tuple[int, ...] = ()
    causal: tuple[bool, ...] = ()
    sample_from_anchor: bool = False
    attention_bias: bool = False
    mask_embedding: bool = False

    @property
    def num_cache_layers(self) -> int:
        """Layers of the drafter's own K/V cache."""
        return len(self.windows)

    @property
    def first_slot(self) -> int:
        """First block slot whose logits propose a token."""
        return 0 if self.sample_from_anchor else 1


@dataclass(frozen=True)
class DSparkConfig(DFlashConfig):
    """DSpark: DFlash with a Markov correction of the logits and a confidence head.

    Attributes:
        markov_rank: rank r of the correction; 0 is none.
        markov_type: "vanilla" looks at the previous token only, "gated" and "rnn" at the slot's hidden state too.
        confidence_head: the checkpoint estimates the acceptance of each slot.
        confidence_with_markov: that head also reads the previous token's Markov embedding.
    """

    markov_rank: int = 0
    markov_type: MarkovType = "vanilla"
    confidence_head: bool = False
    confidence_with_markov: bool = False

    @property
    def confidence_width(self) -> int:
        """Input channels of the confidence head."""
        return self.hidden_size + (self.markov_rank if self.confidence_with_markov else 0)
