# SPDX-License-Identifier: Apache-2.0
"""Heads that look at the token drafted before: the Markov correction and the confidence estimate.

Owns their arithmetic and published names. Tokens are target ids; logits are over the draft vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hspec_trt.config.drafters_block import MarkovType


class MarkovHead(nn.Module):
    """Adds ``W2 f`` to a slot's logits, with f made of the token before it: ``e = W1[previous]``.

    vanilla: f = e. gated: ``f = e * sigmoid(gate [hidden; e])``. rnn: a state runs through the block,
    ``[g; c; o] = joint [state; e; hidden]``, ``state <- sig(g) state + (1 - sig(g)) tanh(c)``, ``f = tanh(o)``.
    """

    def __init__(
        self,
        vocab_size: int,
        draft_vocab_size: int,
        rank: int,
        *,
        kind: MarkovType = "vanilla",
        hidden_size: int = 0,
    ) -> None:
        super().__init__()
        self.kind, self.rank = kind, rank
        self.markov_w1 = nn.Embedding(vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, draft_vocab_size, bias=False)
        if kind == "gated":
            self.gate_proj = nn.Linear(hidden_size + rank, rank)
        if kind == "rnn":
            self.joint_proj = nn.Linear(2 * rank + hidden_size, 3 * rank)

    def embed(self, previous: Tensor) -> Tensor:
        """``W1`` rows ``[..., rank]`` of target ids ``[...]``."""
        rows: Tensor = self.markov_w1(previous)
        return rows

    def start(self, hidden: Tensor) -> Tensor:
        """State before the first slot, zeros ``[..., rank]`` for hidden states ``[..., B, hidden]``."""
        return hidden.new_zeros(*hidden.shape[:-2], self.rank)

    def step(self, state: Tensor, previous: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """f ``[..., rank]`` of one slot, and the next state.

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
        return rows, state

    def block(self, previous: Tensor, hidden: Tensor) -> Tensor:
        """f ``[..., B, rank]`` of a block whose tokens are known: ``[..., B]`` and ``[..., B, hidden]``."""
        if self.kind == "vanilla":
            return self.embed(previous)
        state, found = self.start(hidden), []
        for slot in range(previous.shape[-1]):
            rows, state = self.step(state, previous[..., slot], hidden[..., slot, :])
            found.append(rows)
        return torch.stack(found, dim=-2)

    def correction(self, rows: Tensor) -> Tensor:
        """``W2 f`` ``[..., draft_vocab]``."""
        out: Tensor = self.markov_w2(rows)
        return out


class ConfidenceHead(nn.Module):
    """Logit of the chance that the target accepts a slot."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 1)

    def forward(self, hidden: Tensor, markov: Tensor | None) -> Tensor:
        """Logit ``[...]`` before the sigmoid.

        Args:
            hidden: ``[..., hidden]``, the head's input.
            markov: ``W1`` rows of the previous token ``[..., rank]``, where the head takes them.
        """
        features = hidden if markov is None else torch.cat([hidden, markov.to(hidden.dtype)], dim=-1)
        out: Tensor = self.proj(features)
        return out.squeeze(-1)
