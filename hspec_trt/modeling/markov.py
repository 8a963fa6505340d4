# SPDX-License-Identifier: Apache-2.0
"""Heads that look at the token drafted before: the Markov correction and the confidence estimate.

Owns their arithmetic and published names. Tokens are target ids; logits are over the draft vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MarkovHead(nn.Module):
    """Adds ``W2 W1[previous token]`` to the logits."""

    def __init__(self, vocab_size: int, draft_vocab_size: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, draft_vocab_size, bias=False)

    def embed(self, previous: Tensor) -> Tensor:
        """``W1`` rows ``[..., rank]`` of target ids ``[...]``."""
        rows: Tensor = self.markov_w1(previous)
        return rows

    def bias(self, previous: Tensor) -> Tensor:
        """Correction ``[..., draft_vocab]`` of target ids ``[...]``."""
        out: Tensor = self.markov_w2(self.embed(previous))
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
