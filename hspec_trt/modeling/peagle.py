# SPDX-License-Identifier: Apache-2.0
"""P-EAGLE in PyTorch: EAGLE-3's layers, all drafts in one pass through learned mask entries.

Owns what differs from `hspec_trt.modeling.eagle3`: the mask entries and who sees whom among sampled depths.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hspec_trt.config.drafters_eagle import PEagleConfig
from hspec_trt.modeling.eagle3 import Eagle3


class PEagle(Eagle3):
    """A P-EAGLE drafter."""

    config: PEagleConfig

    def __init__(self, config: PEagleConfig) -> None:
        super().__init__(config)
        self.mask_hidden = nn.Parameter(torch.randn(1, 1, len(config.fused_layers) * config.hidden_size))

    def entries(self, token_ids: Tensor, states: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens ``[E]`` and ``g`` ``[E, hidden]`` of entries, mask entries where bool `masked` ``[E]``.

        Args:
            token_ids: int64 ``[E]``; ignored where masked.
            states: concatenated target states ``[E, F * hidden]``; ignored where masked.
        """
        tokens = torch.where(masked, torch.full_like(token_ids, self.config.mask_token_id), token_ids)
        raw = torch.where(masked[:, None], self.mask_hidden[0].to(states.dtype), states)
        return tokens, self.fuse(raw)

    def depth_masks(self, anchors: Tensor, depths: Tensor, same_text: Tensor | None = None) -> list[Tensor]:
        """Per layer, who sees whom among elements (anchor, depth) at position anchor + depth: bool ``[E, E]``.

        A query sees real entries (depth 0) up to its anchor, inside the window, and its own chain of smaller depths.

        Args:
            anchors, depths: int64 ``[E]``.
            same_text: bool ``[E, E]``; None: one text.
        """
        real = (depths == 0)[None, :] & (anchors[None, :] <= anchors[:, None])
        chain = (anchors[None, :] == anchors[:, None]) & (depths[None, :] <= depths[:, None])
        distance = (anchors + depths)[:, None] - anchors[None, :]
        masks = []
        for window in self.config.windows:
            seen = chain | (real & (distance < window) if window else real)
            masks.append(seen if same_text is None else seen & same_text)
        return masks

    def draft(self, entry_ids: Tensor, states: Tensor, num_drafts: int) -> tuple[Tensor, Tensor]:
        """Greedy drafts after a whole text in one pass: draft ids ``[G]`` and their logits ``[G, Vd]``.

        Args:
            entry_ids: int64 ``[p]``, tokens ``x_1 .. x_p``.
            states: concatenated target states ``[p, F * hidden]`` of tokens ``0 .. p-1``.
        """
        real, masks = len(entry_ids), num_drafts - 1
        positions = torch.arange(real + masks)
        pad = entry_ids.new_zeros(masks)
        padded = torch.cat([states, states.new_zeros(masks, states.shape[1])])
        tokens, g = self.entries(torch.cat([entry_ids, pad]), padded, positions >= real)
        x, _ = self.run(tokens, g, positions, self.causal_masks(positions, positions))
        logits = self.logits(x[real - 1 :])
        return logits.argmax(-1), logits
