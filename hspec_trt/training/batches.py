# SPDX-License-Identifier: Apache-2.0
"""Anchors and batches: which blocks a step trains on, and their inputs out of the teacher cache.

Owns the order (a pure function of seed and epoch, so that a resumed run sees what an uninterrupted one would) and the
indices: anchor p is seeded by token p - 1, slot k is judged by the target's row p + k - 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.modeling.block import BlockInputs
from hspec_trt.training.cache import TeacherCache
from hspec_trt.training.data import Conversation


@dataclass(frozen=True)
class Chunk:
    """Some anchors of one conversation.

    Attributes:
        index: the conversation's place in the cache.
        anchors: positions, at most as many as a batch row holds.
    """

    index: int
    anchors: NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """S chunks of A anchors with J judged slots each (slots 1 to J of the block).

    Attributes:
        previous: text token before each judged slot ``[S, A, J]``, target ids.
        labels: text token of each judged slot ``[S, A, J]``; meaningless where `mask` or the text ends.
        final: the target's head input of the row that judges each slot ``[S, A, J, hidden]``.
        mask: float ``[S, A, J]``, 0 at padding and beyond the text.
    """

    inputs: BlockInputs
    previous: Tensor
    labels: Tensor
    final: Tensor
    mask: Tensor


def anchor_positions(conversation: Conversation, *, prompt: bool = False) -> NDArray[np.int64]:
    """Positions that can be an anchor: response tokens after which the target says something worth learning.

    Args:
        prompt: prompt tokens too, but for the first, which nothing could seed.
    """
    return np.arange(1 if prompt else len(conversation.prompt_ids), conversation.num_labels, dtype=np.int64)


def epoch_chunks(
    conversations: Sequence[Conversation],
    indices: Sequence[int],
    *,
    anchors_per_chunk: int,
    seed: int,
    epoch: int,
    prompt: bool = False,
) -> list[Chunk]:
    """Every anchor of the conversations once, in random chunks in random order; `prompt` as in `anchor_positions`."""
    rng = np.random.default_rng([seed, epoch])
    chunks = []
    for index in indices:
        anchors = rng.permutation(anchor_positions(conversations[index], prompt=prompt))
        for start in range(0, len(anchors), anchors_per_chunk):
            chunks.append(Chunk(index, np.sort(anchors[start : start + anchors_per_chunk])))
    order = rng.permutation(len(chunks))
    return [chunks[place] for place in order]


def make_batch(
    cache: TeacherCache, chunks: Sequence[Chunk], config: DrafterConfig, *, anchors_per_chunk: int, num_slots: int
) -> Batch:
    """Inputs and labels of some chunks.

    Args:
        config: names the fused states; the cache may hold more.
        num_slots: J, judged slots; the block runs J + 1.
    """
    states = [cache.key.hidden_layers.index(layer) for layer in config.fused_layers]
    rows = [_Row(cache, chunk, states, anchors_per_chunk, num_slots) for chunk in chunks]
    context_len = max(len(row.kv) for row in rows)
    kv = torch.zeros(len(rows), context_len, *rows[0].kv.shape[1:], dtype=torch.bfloat16)
    for place, row in enumerate(rows):
        kv[place, : len(row.kv)] = row.kv
    context = None
    if cache.key.all_rows:
        context = torch.zeros(len(rows), context_len, rows[0].context.shape[1], dtype=torch.bfloat16)
        for place, row in enumerate(rows):
            context[place, : len(row.context)] = row.context
    layers = cache.key.kv_layers
    inputs = BlockInputs(
        torch.stack([row.anchor_ids for row in rows]),
        torch.stack([row.anchors for row in rows]),
        torch.stack([row.fused for row in rows]),
        {layer: kv[:, :, place, 0] for place, layer in enumerate(layers)},
        {layer: kv[:, :, place, 1] for place, layer in enumerate(layers)},
        context,
    )
    return Batch(
        inputs,
        torch.stack([row.previous for row in rows]),
        torch.stack([row.labels for row in rows]),
        torch.stack([row.final for row in rows]),
        torch.stack([row.mask for row in rows]),
    )


class _Row:
    """One line of a batch."""

    def __init__(
        self, cache: TeacherCache, chunk: Chunk, fused: list[int], anchors_per_chunk: int, num_slots: int
    ) -> None:
        conversation, states = cache.conversations[chunk.index], cache.read(chunk.index)
        tokens, first = torch.tensor(conversation.token_ids), states.first_row
        missing = anchors_per_chunk - len(chunk.anchors)
        self.anchors = torch.from_numpy(np.pad(chunk.anchors, (0, missing), mode="edge"))
        self.anchor_ids = tokens[self.anchors]
        self.kv = states.kv[: int(self.anchors.max())]
        self.context = states.rows[: len(self.kv), fused].flatten(1)
        self.fused = states.rows[self.anchors - 1 - first][:, fused].flatten(1)
        slots = self.anchors[:, None] + torch.arange(1, num_slots + 1)
        judges = (slots - 1).clamp(max=conversation.num_labels - 1)
        self.previous = tokens[judges]
        self.labels = tokens[slots.clamp(max=len(tokens) - 1)]
        self.final = states.rows[judges - first, -1]
        valid = slots - 1 < conversation.num_labels
        valid[len(chunk.anchors) :] = False
        self.mask = valid.float()


def add_noise(inputs: BlockInputs, width: float, generator: torch.Generator) -> BlockInputs:
    """The inputs with uniform noise in ``[-width, width]`` on states, keys and values."""

    def noisy(values: Tensor) -> Tensor:
        return values + (2 * torch.rand(values.shape, generator=generator) - 1).to(values.dtype) * width

    return BlockInputs(
        inputs.anchor_ids,
        inputs.anchors,
        noisy(inputs.fused),
        {layer: noisy(key) for layer, key in inputs.keys.items()},
        {layer: noisy(value) for layer, value in inputs.values.items()},
        None if inputs.context is None else noisy(inputs.context),
    )


def batches_of(chunks: Sequence[Chunk], chunks_per_step: int) -> Iterator[Sequence[Chunk]]:
    """Consecutive groups of chunks; the last may be smaller."""
    for start in range(0, len(chunks), chunks_per_step):
        yield chunks[start : start + chunks_per_step]
