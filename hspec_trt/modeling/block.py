# SPDX-License-Identifier: Apache-2.0
"""What block drafters have in common: their inputs, the frozen tables of the target, and the greedy choice of drafts.

Owns everything after the last hidden state of a block. How that state is made is for the drafters.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

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
        next_ids: int64 ``[S, T]``, the token after each of those, for drafters that pair the two.
        kept: bool ``[S, A, slots]``, the slots whose result is wanted, each with all before it; a drafter may leave out
            the work for the others. None is all.
    """

    anchor_ids: Tensor
    anchors: Tensor
    fused: Tensor
    keys: Mapping[int, Tensor]
    values: Mapping[int, Tensor]
    context: Tensor | None = None
    next_ids: Tensor | None = None
    kept: Tensor | None = None


@dataclass(frozen=True)
class Drafts:
    """Greedy drafts of a block, one of each proposing slot.

    Attributes:
        draft_ids, target_ids: int64 ``[S, A, J]``, in the draft vocabulary and in the target's.
        logits: after the Markov correction ``[S, A, J, Vd]``.
        confidence: logits ``[S, A, J]``; None without that head.
    """

    draft_ids: Tensor
    target_ids: Tensor
    logits: Tensor
    confidence: Tensor | None


@dataclass
class HeadTrace:
    """Inner values for tests, every slot: base logits, corrected ones and previous tokens ``[S, A, B, ..]``."""

    base: Tensor | None = None
    corrected: list[Tensor] = field(default_factory=list)
    previous: list[Tensor] = field(default_factory=list)
    confidence: Tensor | None = None


class TableDrafter(nn.Module):
    """A drafter on the target's embedding and head rows, which are buffers and never trained.

    Parameters carry their published names, so a state dict is a checkpoint without those tables.
    """

    embedding: Tensor
    head: Tensor
    target_ids: Tensor

    def __init__(self, tables: SharedTables) -> None:
        super().__init__()
        self.register_buffer("embedding", tables.embedding, persistent=False)
        self.register_buffer("head", tables.head, persistent=False)
        self.register_buffer("target_ids", tables.target_ids, persistent=False)

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        return self.target_ids.device

    def embed(self, token_ids: Tensor) -> Tensor:
        """Embeddings of target ids ``[...]``: fp32 ``[..., hidden]``."""
        return functional.embedding(token_ids, self.embedding).float()

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits ``[..., Vd]`` of the head's input ``[..., hidden]``, before any Markov correction."""
        return functional.linear(hidden, self.head.to(hidden.dtype)).float()


class BlockDrafter(TableDrafter):
    """Base of drafters that make all drafts in one pass over a block of slots."""

    markov_head: MarkovHead | None
    confidence_head: ConfidenceHead | None

    def __init__(self, tables: SharedTables) -> None:
        super().__init__(tables)
        self.markov_head = None
        self.confidence_head = None

    @property
    @abstractmethod
    def drafter_config(self) -> DrafterConfig:
        """The configuration."""

    @property
    def first_slot(self) -> int:
        """First slot that proposes a token: 1 where slot k proposes that of its own position, else 0."""
        return 1

    @property
    @abstractmethod
    def causal(self) -> bool:
        """True where a slot depends on no later one, so that a block may be cut."""

    @property
    def chained(self) -> bool:
        """True where slots are a chain of learned entries after the text's own, which training may thin out."""
        return False

    @property
    def num_drafts(self) -> int:
        """Tokens that a step proposes."""
        return self.drafter_config.num_drafts

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
        return self.embed(block_ids)

    def markov_rows(self, inputs: BlockInputs, previous: Tensor, hidden: Tensor) -> Tensor | None:
        """What the Markov head's ``W2`` multiplies, ``[S, A, J, rank]``, for known tokens; None without that head.

        Args:
            previous: int64 ``[S, A, J]``, target id before each of the first J proposed tokens.
            hidden: `hidden`'s result with J proposing slots. A slot before them runs too, after the anchor.
        """
        if self.markov_head is None:
            return None
        before = inputs.anchor_ids[..., None].expand(*previous.shape[:-1], self.first_slot)
        return self.markov_head.block(torch.cat([before, previous], -1), hidden)[..., self.first_slot :, :]

    def confidence(self, hidden: Tensor, previous: Tensor) -> Tensor | None:
        """Acceptance logits ``[...]`` of slots; None without that head, which never shapes what it reads.

        Args:
            previous: target id before each slot.
        """
        if self.confidence_head is None:
            return None
        takes_markov = self.confidence_head.proj.in_features > hidden.shape[-1]
        markov = self.markov_head.embed(previous).detach() if takes_markov and self.markov_head is not None else None
        out: Tensor = self.confidence_head(hidden.detach(), markov)
        return out

    @torch.no_grad()
    def draft(self, inputs: BlockInputs, *, window_edge: WindowEdge = "slot", trace: HeadTrace | None = None) -> Drafts:
        """Greedy drafts; the Markov correction follows the drafter's own choices."""
        hidden, head, first = self.hidden(inputs, window_edge=window_edge), self.markov_head, self.first_slot
        base = self.logits(hidden)
        state = head.start(hidden) if head is not None else hidden
        token, previous, logits, chosen = inputs.anchor_ids, [], [], []
        for slot in range(hidden.shape[-2]):
            row = base[..., slot, :]
            if head is not None:
                rows, state = head.step(state, token, hidden[..., slot, :])
                row = row + head.correction(rows).float()
            previous.append(token)
            logits.append(row)
            if slot >= first:
                chosen.append(row.argmax(-1))
                token = self.target_ids[chosen[-1]]
        confidence = self.confidence(hidden, torch.stack(previous, -1))
        if trace is not None:
            trace.base, trace.corrected, trace.previous, trace.confidence = base, logits, previous, confidence
        ids = torch.stack(chosen, -1)
        used = None if confidence is None else confidence[..., first:]
        return Drafts(ids, self.target_ids[ids], torch.stack(logits[first:], -2), used)
