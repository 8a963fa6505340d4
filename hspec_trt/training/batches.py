# SPDX-License-Identifier: Apache-2.0
"""Anchors and batches: which blocks a step trains on, and their inputs out of the teacher cache.

Owns the order (a pure function of seed and epoch, so that a resumed run sees what an uninterrupted one would) and the
indices: anchor p is seeded by token p - 1, the k-th proposed token is judged by the target's row p + k - 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.modeling.block import BlockInputs
from hspec_trt.training.cache import TeacherCache
from hspec_trt.training.data import Conversation
from hspec_trt.training.device import move


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
    """S chunks of A anchors with J judged proposals each.

    Attributes:
        previous: text token before each proposed one ``[S, A, J]``, target ids.
        labels: the text's own token there ``[S, A, J]``; meaningless where `mask` or the text ends.
        final: the target's head input of the row that judges it ``[S, A, J, hidden]``.
        mask: float ``[S, A, J]``, 0 at padding and beyond the text.
    """

    inputs: BlockInputs
    previous: Tensor
    labels: Tensor
    final: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""

        def moved(values: Tensor) -> Tensor:
            return move(values, device)

        inputs = self.inputs
        there = BlockInputs(
            moved(inputs.anchor_ids),
            moved(inputs.anchors),
            moved(inputs.fused),
            {layer: moved(key) for layer, key in inputs.keys.items()},
            {layer: moved(value) for layer, value in inputs.values.items()},
            *(None if part is None else moved(part) for part in (inputs.context, inputs.next_ids, inputs.kept)),
        )
        return Batch(there, moved(self.previous), moved(self.labels), moved(self.final), moved(self.mask))


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
        config: says which states, keys and values are needed; the cache may hold more.
        num_slots: J, judged proposals.
    """
    states = [cache.key.hidden_layers.index(layer) for layer in config.fused_layers]
    rows = [_Row(cache, chunk, states, anchors_per_chunk, num_slots) for chunk in chunks]
    context_len = max(len(row.kv) for row in rows)
    context = next_ids = None
    if config.num_cache_layers:
        context = torch.zeros(len(rows), context_len, rows[0].fused.shape[1], dtype=torch.bfloat16)
        next_ids = torch.zeros(len(rows), context_len, dtype=torch.int64)
        for place, row in enumerate(rows):
            context[place, : len(row.kv)], next_ids[place, : len(row.kv)] = row.context(states)
    layers = config.read_kv_layers
    stored = [cache.key.kv_layers.index(layer) for layer in layers]
    kv = torch.zeros(len(rows), context_len, len(layers), *rows[0].kv.shape[2:], dtype=torch.bfloat16)
    for place, row in enumerate(rows if layers else []):
        kv[place, : len(row.kv)] = row.kv[:, stored]
    inputs = BlockInputs(
        torch.stack([row.anchor_ids for row in rows]),
        torch.stack([row.anchors for row in rows]),
        torch.stack([row.fused for row in rows]),
        {layer: kv[:, :, place, 0] for place, layer in enumerate(layers)},
        {layer: kv[:, :, place, 1] for place, layer in enumerate(layers)},
        context,
        next_ids,
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
        self.kv, self._states, self._tokens = states.kv[: int(self.anchors.max())], states.rows, tokens
        self.fused = states.rows[self.anchors - 1 - first][:, fused].flatten(1)
        slots = self.anchors[:, None] + torch.arange(1, num_slots + 1)
        judges = (slots - 1).clamp(max=conversation.num_labels - 1)
        self.previous = tokens[judges]
        self.labels = tokens[slots.clamp(max=len(tokens) - 1)]
        self.final = states.rows[judges - first, -1]
        valid = slots - 1 < conversation.num_labels
        valid[len(chunk.anchors) :] = False
        self.mask = valid.float()

    def context(self, fused: list[int]) -> tuple[Tensor, Tensor]:
        """Fused states of every token before the last anchor ``[T, F * hidden]``, and the token after each ``[T]``."""
        length = len(self.kv)
        return self._states[:length, fused].flatten(1), self._tokens[1 : length + 1]


def add_noise(inputs: BlockInputs, width: float, generator: torch.Generator) -> BlockInputs:
    """The inputs with uniform noise in ``[-width, width]`` on states, keys and values."""

    def noisy(values: Tensor) -> Tensor:
        return values + (2 * torch.rand(values.shape, generator=generator) - 1).to(values.dtype) * width

    return replace(
        inputs,
        fused=noisy(inputs.fused),
        keys={layer: noisy(key) for layer, key in inputs.keys.items()},
        values={layer: noisy(value) for layer, value in inputs.values.items()},
        context=None if inputs.context is None else noisy(inputs.context),
    )


def batches_of(chunks: Sequence[Chunk], chunks_per_step: int) -> Iterator[Sequence[Chunk]]:
    """Consecutive groups of chunks; the last may be smaller."""
    for start in range(0, len(chunks), chunks_per_step):
        yield chunks[start : start + chunks_per_step]
