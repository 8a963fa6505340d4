# SPDX-License-Identifier: Apache-2.0
"""DSpark in PyTorch: DFlash's backbone, then a serial head that corrects each slot by the token before it.

Owns the serial part of drafting and the kinds of Markov head that look at more than the previous token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from hspec_trt.config.drafters_block import DSparkConfig, MarkovType
from hspec_trt.modeling.attention import WindowEdge
from hspec_trt.modeling.block import BlockInputs, Drafts, SharedTables
from hspec_trt.modeling.dflash import DFlashModel
from hspec_trt.modeling.markov import ConfidenceHead, MarkovHead


@dataclass
class HeadTrace:
    """Inner values for tests, slot 0 included: base logits, corrected ones and previous tokens ``[S, A, B, ..]``."""

    base: Tensor | None = None
    corrected: list[Tensor] = field(default_factory=list)
    previous: list[Tensor] = field(default_factory=list)
    confidence: Tensor | None = None


class SerialMarkov(MarkovHead):
    """A Markov head of any kind, run slot by slot.

    vanilla: ``W2 e`` with e = W1[previous]. gated: ``W2 (e * sigmoid(gate [hidden; e]))``. rnn: a state runs through
    the block, ``[g; c; o] = joint [state; e; hidden]``, ``state <- sig(g) state + (1 - sig(g)) tanh(c)``, and the
    correction is ``W2 tanh(o)``.
    """

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__(config.vocab_size, config.draft_vocab_size, config.markov_rank)
        self.kind: MarkovType = config.markov_type
        self.rank, hidden = config.markov_rank, config.hidden_size
        if self.kind == "gated":
            self.gate_proj = nn.Linear(hidden + self.rank, self.rank)
        if self.kind == "rnn":
            self.joint_proj = nn.Linear(2 * self.rank + hidden, 3 * self.rank)

    def start(self, hidden: Tensor) -> Tensor:
        """State before the first slot, zeros ``[..., rank]`` for hidden states ``[..., B, hidden]``."""
        return hidden.new_zeros(*hidden.shape[:-2], self.rank)

    def step(self, state: Tensor, previous: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Correction ``[..., Vd]`` of one slot, and the next state.

        Args:
            previous: int64 ``[...]``, target id of the token before the one proposed.
            hidden: ``[..., hidden]``, the slot's last hidden state.
        """
        rows = self.embed(previous)
        if self.kind == "gated":
            rows = rows * torch.sigmoid(self.gate_proj(torch.cat([hidden, rows], dim=-1)))
        elif self.kind == "rnn":
            gate, candidate, out = self.joint_proj(torch.cat([state, rows, hidden], dim=-1)).chunk(3, dim=-1)
            gate = torch.sigmoid(gate)
            state = gate * state + (1 - gate) * torch.tanh(candidate)
            rows = torch.tanh(out)
        return self.markov_w2(rows), state

    def block(self, previous: Tensor, hidden: Tensor) -> Tensor:
        """Corrections ``[..., B, Vd]`` of a block whose tokens are known: ``[..., B]`` and ``[..., B, hidden]``."""
        state, corrections = self.start(hidden), []
        for slot in range(previous.shape[-1]):
            correction, state = self.step(state, previous[..., slot], hidden[..., slot, :])
            corrections.append(correction)
        return torch.stack(corrections, dim=-2)


class DSparkModel(DFlashModel):
    """The drafter."""

    def __init__(self, config: DSparkConfig, tables: SharedTables) -> None:
        super().__init__(config, tables)
        self.heads = config
        self.markov_head = SerialMarkov(config) if config.markov_rank else None
        self.confidence_head = ConfidenceHead(config.confidence_width) if config.confidence_head else None

    @torch.no_grad()
    def draft(self, inputs: BlockInputs, *, window_edge: WindowEdge = "slot", trace: HeadTrace | None = None) -> Drafts:
        """Greedy drafts, each corrected by the one before it.

        The slot before the first proposing one (in-fill layout) also runs, with the anchor as its previous token:
        the rnn kind's state passes through it in training.
        """
        hidden, first = self.hidden(inputs, window_edge=window_edge), self.config.first_slot
        base = self.logits(hidden)
        head = self.markov_head if isinstance(self.markov_head, SerialMarkov) else None
        state = head.start(hidden) if head is not None else hidden.new_empty(0)
        tokens, previous, logits, chosen = inputs.anchor_ids, [], [], []
        for slot in range(hidden.shape[-2]):
            row = base[..., slot, :]
            if head is not None:
                correction, state = head.step(state, tokens, hidden[..., slot, :])
                row = row + correction.float()
            previous.append(tokens)
            logits.append(row)
            if slot >= first:
                chosen.append(row.argmax(-1))
                tokens = self.target_ids[chosen[-1]]
        confidence = self.confidence(hidden, torch.stack(previous, -1))
        if trace is not None:
            trace.base, trace.corrected, trace.previous, trace.confidence = base, logits, previous, confidence
        ids = torch.stack(chosen, -1)
        used = None if confidence is None else confidence[..., first:]
        return Drafts(ids, self.target_ids[ids], torch.stack(logits[first:], -2), used)
