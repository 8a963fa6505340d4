# SPDX-License-Identifier: Apache-2.0
"""Which target tokens a reduced draft vocabulary keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from hspec_trt.training.data import Conversation


def choose_vocab(conversations: Iterable[Conversation], *, vocab_size: int, draft_vocab_size: int) -> Tensor:
    """Target ids int64 ``[draft_vocab_size]``, rising: the most frequent response tokens.

    Ties go to the smaller id; where fewer tokens occur, the smallest unused ids fill up.
    """
    counts = Counter(token for conversation in conversations for token in conversation.response_ids)
    ranked = sorted(range(vocab_size), key=lambda token: (-counts[token], token))
    return torch.tensor(sorted(ranked[:draft_vocab_size]))


def coverage(conversations: Iterable[Conversation], target_ids: Tensor) -> float:
    """Share of response tokens that the draft vocabulary holds."""
    kept = set(target_ids.tolist())
    tokens = [token for conversation in conversations for token in conversation.response_ids]
    return sum(token in kept for token in tokens) / max(1, len(tokens))
