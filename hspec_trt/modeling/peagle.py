# SPDX-License-Identifier: Apache-2.0
"""P-EAGLE in PyTorch: EAGLE-3's layers, all drafts in one pass through learned mask entries.

Owns what differs from `hspec_trt.modeling.eagle3`: the mask entries, its own embedding table, and the pass over the
entries of a text with a block at every anchor: its own entry and a chain of mask entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from hspec_trt.config.drafters_eagle import PEagleConfig
from hspec_trt.modeling.attention import BlockView, WindowEdge, attend, block_mask, block_positions, context_mask
from hspec_trt.modeling.block import BlockDrafter, BlockInputs, SharedTables
from hspec_trt.modeling.eagle3 import EagleBody, EagleLayer
from hspec_trt.modeling.layers import rope_tables


class PEagle(EagleBody, BlockDrafter):
    """A P-EAGLE drafter. `BlockInputs.context` and `next_ids` must hold every token before the last anchor.

    Slot d of a block is its element of depth d: slot 0 is the last real entry (the anchor's token, the state of the
    token before it), the others are mask entries. All propose a token.
    """

    config: PEagleConfig

    def __init__(self, config: PEagleConfig, tables: SharedTables) -> None:
        super().__init__(config, tables)
        rows, width = tables.embedding.shape
        self.embed_tokens = nn.Embedding(rows, width, _weight=tables.embedding)
        self.mask_hidden = nn.Parameter(torch.randn(1, 1, len(config.fused_layers) * config.hidden_size))

    @property
    def drafter_config(self) -> PEagleConfig:
        """The configuration."""
        return self.config

    @property
    def causal(self) -> bool:
        """True where a slot depends on no later one."""
        return True

    @property
    def chained(self) -> bool:
        """True: the chain of mask entries."""
        return True

    @property
    def first_slot(self) -> int:
        """Slot 0 proposes the first token."""
        return 0

    def embed(self, token_ids: Tensor) -> Tensor:
        """Embeddings of target ids ``[...]`` from the drafter's own table: fp32 ``[..., hidden]``."""
        rows: Tensor = self.embed_tokens(token_ids)
        return rows.float()

    def hidden(self, inputs: BlockInputs, *, num_slots: int | None = None, window_edge: WindowEdge = "slot") -> Tensor:
        """Run the real entries of each text and the block of each anchor, see `BlockDrafter.hidden`.

        The window always moves with the slot, in training as in serving. Real entries are context here: the last layer
        only takes its keys and values of them, and none beyond the last anchor is run. Slots outside of
        `BlockInputs.kept` are not run either; their rows are 0.
        """
        if inputs.context is None or inputs.next_ids is None:
            raise ValueError("this drafter needs state and successor of every token: BlockInputs.context, next_ids")
        config, slots, ends = self.config, num_slots or self.config.num_drafts, inputs.anchors - 1
        positions = torch.arange(inputs.next_ids.shape[1], device=ends.device)
        entries = _Places(positions <= ends.amax(1, keepdim=True))
        shape = (*ends.shape, slots)
        block = _Places(torch.ones(shape, dtype=torch.bool, device=ends.device) if inputs.kept is None else inputs.kept)
        x = self.fuse(entries.take(inputs.context).float())
        first = entries.spread(x).gather(1, ends[..., None].expand(-1, -1, x.shape[-1]))
        chain = self.fuse(self.mask_hidden[0, 0]).expand(*ends.shape, slots - 1, -1)
        y = block.take(torch.cat([first[:, :, None], chain], dim=2))
        embedding = self.embed(entries.take(inputs.next_ids))
        block_embedding = block.take(self.embed_blocks(inputs, slots, config.mask_token_id))
        rotation = rope_tables(config.rope, config.head_dim, entries.take(positions.expand_as(inputs.next_ids)))
        block_rotation = rope_tables(config.rope, config.head_dim, block.take(block_positions(ends, slots)))
        masks = self.causal_masks(positions, positions)
        for index, layer in enumerate(cast("Sequence[EagleLayer]", self.layers)):
            attention, view = layer.self_attn, BlockView(config.windows[index], causal=True)
            far = context_mask(ends, block_size=slots, context_len=len(positions), view=view)
            near = block_mask(slots, view, ends.device)
            residual, normed = layer.read(embedding, x)
            key, value = (entries.spread(part) for part in attention.context(normed, rotation))
            block_residual, block_normed = layer.read(block_embedding, y)
            q, k, v = (block.spread(part) for part in attention.project(block_normed, block_rotation))
            mixed = attend(q, k, v, (key, value), (far, near)).flatten(3)
            y = layer.write(block_residual, attention.o_proj(block.take(mixed)))
            if index + 1 < len(self.layers):
                query = entries.spread(attention.query(normed, rotation))
                mixed = attention.mix(query, (key, value), masks[index])
                x = layer.write(residual, attention.o_proj(entries.take(mixed)))
        out: Tensor = block.spread(self.norm(y))
        return out


class _Places:
    """The places of a padded layout that hold something: layers run over those, attention sees the whole layout."""

    def __init__(self, present: Tensor) -> None:
        """Keep the places where `present`, bool of the layout's shape, is set."""
        self._shape, self._index = present.shape, present.flatten().nonzero().squeeze(1)

    def take(self, padded: Tensor) -> Tensor:
        """``[*shape, ...]`` to ``[places, ...]``."""
        return padded.flatten(0, len(self._shape) - 1).index_select(0, self._index)

    def spread(self, rows: Tensor) -> Tensor:
        """``[places, ...]`` to ``[*shape, ...]``, 0 elsewhere."""
        padded = rows.new_zeros(self._shape.numel(), *rows.shape[1:]).index_copy(0, self._index, rows)
        return padded.view(*self._shape, *rows.shape[1:])
