# SPDX-License-Identifier: Apache-2.0
"""What block drafters have in common: their inputs, the frozen tables of the target, and the greedy choice of drafts.

Owns everything after the last hidden state of a block. How that state is made is for the drafters.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.modeling.attention import WindowEdge
from hspec_trt.modeling.markov import ConfidenceHead, MarkovHead


@dataclass(frozen=True)
class SharedTables:
    """What a drafter takes from its target.

    Attributes:
        embedding: ``[V, hidden]``.
        head: rows of the target's head for the draft vocabulary ``[Vd, hidden]``.
        target_ids: int64 ``[Vd]``, the target id of each draft id.
    """

    embedding: Tensor
    head: Tensor
    target_ids: Tensor


@dataclass(frozen=True)
class BlockInputs:
    """One block per anchor; S sequences with A anchors each.

    Attributes:
        anchor_ids, anchors: int64 ``[S, A]``, the anchor token and its position p.
        fused: ``[S, A, F * hidden]``, the target's states of token p - 1 side by side in the order of the config.
        keys, values: by target layer, ``[S, T, kv_heads, head_dim]``; only positions before an anchor are read.
        context: ``[S, T, F * hidden]``, the states of every token, for drafters that make their own K and V of them.
    """

    anchor_ids: Tensor
    anchors: Tensor
    fused: Tensor
    keys: Mapping[int, Tensor]
    values: Mapping[int, Tensor]
    context: Tensor | None = None


@dataclass(frozen=True)
class Drafts:
    """Greedy drafts of a block; slots 1 to B - 1.

    Attributes:
        draft_ids, target_ids: int64 ``[S, A, B - 1]``, in the draft vocabulary and in the target's.
        logits: after the Markov correction ``[S, A, B - 1, Vd]``.
        confidence: logits ``[S, A, B - 1]``; None without that head.
    """

    draft_ids: Tensor
    target_ids: Tensor
    logits: Tensor
    confidence: Tensor | None


class BlockDrafter(nn.Module):
    """Base of drafters whose slot k predicts the token at its own position; slot 0 is the anchor.

    Embedding and head rows are buffers that are never trained. Parameters carry their published names, so a state dict
    is a checkpoint without them.
    """

    embedding: Tensor
    head: Tensor
    target_ids: Tensor
    markov_head: MarkovHead | None
    confidence_head: ConfidenceHead | None

    def __init__(self, num_drafts: int, tables: SharedTables) -> None:
        super().__init__()
        self.num_drafts = num_drafts
        self.register_buffer("embedding", tables.embedding, persistent=False)
        self.register_buffer("head", tables.head, persistent=False)
        self.register_buffer("target_ids", tables.target_ids, persistent=False)

    @property
    @abstractmethod
    def drafter_config(self) -> DrafterConfig:
        """The configuration."""

    @abstractmethod
    def hidden(self, inputs: BlockInputs, *, num_slots: int | None = None, window_edge: WindowEdge = "slot") -> Tensor:
        """Run the blocks.

        Args:
            num_slots: slots to run, at most the block size. Only a causal block may be cut: its first slots do not
                depend on the others.
            window_edge: which rule a sliding window follows.

        Returns:
            ``[S, A, num_slots, hidden]``, the input of the head.
        """

    def embed_blocks(self, inputs: BlockInputs, num_slots: int, mask_token_id: int) -> Tensor:
        """The anchor's embedding, then the mask token's: fp32 ``[S, A, num_slots, hidden]``."""
        shape = (*inputs.anchors.shape, num_slots)
        block_ids = torch.full(shape, mask_token_id, device=inputs.anchors.device)
        block_ids[..., 0] = inputs.anchor_ids
        return functional.embedding(block_ids, self.embedding).float()

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits ``[..., Vd]`` of the head's input ``[..., hidden]``, before any Markov correction."""
        return functional.linear(hidden, self.head.to(hidden.dtype)).float()

    def confidence(self, hidden: Tensor, previous: Tensor) -> Tensor | None:
        """Acceptance logits ``[...]`` of slots; None without that head.

        Args:
            previous: target id before each slot.
        """
        if self.confidence_head is None:
            return None
        takes_markov = self.confidence_head.proj.in_features > hidden.shape[-1]
        markov = self.markov_head.embed(previous) if takes_markov and self.markov_head is not None else None
        out: Tensor = self.confidence_head(hidden, markov)
        return out

    @torch.no_grad()
    def draft(self, inputs: BlockInputs, *, window_edge: WindowEdge = "slot") -> Drafts:
        """Greedy drafts; the Markov correction follows the drafter's own choices."""
        hidden = self.hidden(inputs, window_edge=window_edge)[..., 1:, :]
        base = self.logits(hidden)
        tokens, chosen, logits = [inputs.anchor_ids], [], []
        for slot in range(hidden.shape[-2]):
            row = base[..., slot, :]
            if self.markov_head is not None:
                row = row + self.markov_head.bias(tokens[-1]).float()
            logits.append(row)
            chosen.append(row.argmax(-1))
            tokens.append(self.target_ids[chosen[-1]])
        before = torch.stack(tokens[:-1], -1)
        return Drafts(
            torch.stack(chosen, -1),
            torch.stack(tokens[1:], -1),
            torch.stack(logits, -2),
            self.confidence(hidden, before),
        )
