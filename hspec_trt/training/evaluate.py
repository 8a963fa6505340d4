# SPDX-License-Identifier: Apache-2.0
"""Accepted length on held-out text: what a step would have emitted, had the target written just this text.

Owns the counting. A draft counts as accepted when it equals the token that the target did write, greedily or sampled,
which is the engine's own rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from hspec_trt.intervals import Estimate, ratio_of_sums
from hspec_trt.modeling.block import BlockDrafter
from hspec_trt.training.batches import Chunk, anchor_positions, batches_of, make_batch
from hspec_trt.training.cache import TeacherCache

ANCHORS_PER_CHUNK = 16
CHUNKS_AT_ONCE = 8


@dataclass
class Acceptance:
    """Counts over decoded conversations.

    Attributes:
        steps: target passes; tokens: what they emitted, bonus tokens included.
        offered, accepted: per draft position, steps in which it could be judged and in which it was accepted.
        conversations: (tokens, steps) of each.
    """

    steps: int = 0
    tokens: int = 0
    offered: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    conversations: list[tuple[int, int]] = field(default_factory=list)

    @property
    def mean_length(self) -> float:
        """Tokens per step, the bonus token included."""
        return self.tokens / max(1, self.steps)

    @property
    def length(self) -> Estimate:
        """`mean_length` with its interval over conversations."""
        return ratio_of_sums([tokens for tokens, _ in self.conversations], [steps for _, steps in self.conversations])

    @property
    def per_position(self) -> list[float]:
        """Share of steps in which the draft at each position was accepted (so it falls from one to the next)."""
        return [accepted / max(1, offered) for accepted, offered in zip(self.accepted, self.offered, strict=True)]


def evaluate(model: BlockDrafter, cache: TeacherCache, indices: Sequence[int]) -> Acceptance:
    """Decode conversations of the cache along their own text."""
    return evaluate_groups(model, cache, {"all": indices})["all"]


def evaluate_groups(
    model: BlockDrafter, cache: TeacherCache, groups: Mapping[str, Sequence[int]]
) -> dict[str, Acceptance]:
    """`evaluate` of several groups of conversations, which may overlap; each conversation is run once."""
    counts = accepted_counts(model, cache, sorted({index for indices in groups.values() for index in indices}))
    found = {}
    for name, indices in groups.items():
        found[name] = Acceptance(offered=[0] * model.num_drafts, accepted=[0] * model.num_drafts)
        for index in indices:
            conversation = cache.conversations[index]
            _walk(found[name], counts[index], len(conversation.prompt_ids), len(conversation.token_ids))
    return found


@torch.inference_mode()
def accepted_counts(model: BlockDrafter, cache: TeacherCache, indices: Sequence[int]) -> dict[int, NDArray[np.int64]]:
    """Accepted drafts of every anchor by conversation, ``[response tokens]`` (0 where no draft is made)."""
    num_drafts = model.num_drafts
    counts = {index: np.zeros(len(cache.conversations[index].response_ids), np.int64) for index in indices}
    chunks = []
    for index in indices:
        anchors = anchor_positions(cache.conversations[index])
        chunks += [
            Chunk(index, part)
            for part in np.split(anchors, range(ANCHORS_PER_CHUNK, len(anchors), ANCHORS_PER_CHUNK))
            if len(part)
        ]
    for group in batches_of(chunks, CHUNKS_AT_ONCE):
        batch = make_batch(
            cache, group, model.drafter_config, anchors_per_chunk=ANCHORS_PER_CHUNK, num_slots=num_drafts
        )
        batch = batch.to(model.device)
        drafted = model.draft(batch.inputs).target_ids[..., :num_drafts]
        same = (drafted == batch.labels) & (batch.mask > 0)
        lengths = same.long().cumprod(-1).sum(-1).cpu().numpy()
        for row, chunk in enumerate(group):
            start = len(cache.conversations[chunk.index].prompt_ids)
            counts[chunk.index][chunk.anchors - start] = lengths[row, : len(chunk.anchors)]
    return counts


def _walk(total: Acceptance, counts: NDArray[np.int64], start: int, end: int) -> None:
    """Follow one text: the prompt's pass gives the first token, then each step emits its drafts and one more."""
    position, before = start, (total.tokens, total.steps)
    while position < end - 1:
        left = end - 1 - position
        accepted = min(int(counts[position - start]), left)
        total.steps += 1
        total.tokens += min(accepted + 1, left)
        for slot in range(min(len(total.offered), left)):
            total.offered[slot] += 1
            total.accepted[slot] += slot < accepted
        position += accepted + 1
    total.conversations.append((total.tokens - before[0], total.steps - before[1]))
