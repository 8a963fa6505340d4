# SPDX-License-Identifier: Apache-2.0
"""EAGLE-3 and P-EAGLE: drafters over entries (next token, fused target state), with a K/V cache of their own.

Entry t pairs token ``x_{t+1}`` with the target's state of token t and sits at rotary position t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hspec_trt.config.drafter import DrafterConfig

NO_MASK_TOKEN: Final = -1
"""`DrafterConfig.mask_token_id` of a drafter that has no mask slots."""


@dataclass(frozen=True)
class Eagle3Config(DrafterConfig):
    """EAGLE-3: one pass over the new entries, then one serial pass a further draft.

    Attributes:
        windows: per draft layer, sliding window in tokens; 0 is full attention.
        qk_norm: query and key heads are RMS-normed (qwen3-type layers).
        attention_bias, mlp_bias: biases on q, k, v, o and on gate, up, down.
        norm_before_residual: layer 0 adds to the normed fused state instead of the plain one.
        norm_before_fc: one RMSNorm over the concatenated states (tensor ``input_norm``).
        fc_norm: one RMSNorm per fused state (tensors ``fc_norm.{i}``).
        norm_output: feeds back the state after the final norm instead of before.
        own_embedding: the checkpoint brings its own embedding table.
    """

    windows: tuple[int, ...] = ()
    qk_norm: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    own_embedding: bool = False

    @property
    def num_cache_layers(self) -> int:
        """Layers of the drafter's own K/V cache."""
        return len(self.windows)

    @property
    def needs_next_ids(self) -> bool:
        """True: an entry pairs a token with the state of the one before, so a chunk needs the token after it."""
        return True


@dataclass(frozen=True)
class PEagleConfig(Eagle3Config):
    """P-EAGLE: all drafts in one pass; mask entries (mask token, learned ``mask_hidden``) follow the real ones."""
