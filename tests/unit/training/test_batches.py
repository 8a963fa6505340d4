# SPDX-License-Identifier: Apache-2.0
"""Which rows a block gets: every index relation, told by states that carry their own position."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hspec_trt.checkpoint.target import load_target
from hspec_trt.training.batches import Chunk, add_noise, anchor_positions, epoch_chunks, make_batch
from hspec_trt.training.block_types import dflash_config
from hspec_trt.training.cache import CachedStates, CacheKey, TeacherCache
from hspec_trt.training.data import Conversation
from hspec_trt.training.hspec_type import make_config
from tests.support.training import SHAPE, SHAPES, TARGET

CONFIG = make_config(load_target(TARGET).config, SHAPE)
CACHED_CONFIG = dflash_config(load_target(TARGET).config, SHAPES["dflash"])
LAYERS, KV = (1, 3, 5), (2, 5)
TEXTS = [
    Conversation("a", "", "", (11, 12, 13), (14, 15, 16, 17, 18, 19), ended=False),
    Conversation("b", "", "", (21, 22), (23, 24, 2), ended=True),
    Conversation("c", "", "", (31, 32, 33, 34, 35), (2,), ended=True),
]


def _cache(folder: Path, *, all_rows: bool = False) -> TeacherCache:
    """Row t of state i holds ``50 * i + t`` (whole numbers that bfloat16 holds), K and V of token t hold t."""
    key = CacheKey("t", "d", LAYERS, KV, 64, 2, 16, "float32", all_rows)
    cache = TeacherCache(folder, key, TEXTS)
    for index, text in enumerate(TEXTS):
        tokens = torch.arange(len(text.token_ids), dtype=torch.bfloat16)
        first = cache.first_row(text)
        rows = tokens[first:, None, None] + 50 * torch.arange(4)[:, None].bfloat16() + torch.zeros(64).bfloat16()
        kv = tokens.view(-1, 1, 1, 1, 1) + torch.zeros(2, 2, 2, 16).bfloat16()
        cache.write(index, CachedStates(kv, rows, first))
    cache.commit(len(TEXTS))
    return cache


def test_anchors_are_response_tokens_that_something_follows() -> None:
    assert [anchor_positions(text).tolist() for text in TEXTS] == [[3, 4, 5, 6, 7, 8], [2, 3], []]


def test_prompt_tokens_may_be_anchors_too(tmp_path: Path) -> None:
    assert [anchor_positions(text, prompt=True).tolist() for text in TEXTS] == [
        [*range(1, 9)],
        [1, 2, 3],
        [*range(1, 5)],
    ]
    batch = make_batch(
        _cache(tmp_path, all_rows=True), [Chunk(2, np.array([1, 4]))], CONFIG, anchors_per_chunk=2, num_slots=3
    )
    assert batch.inputs.fused.view(2, 3, 64)[..., 0].tolist() == [[0, 50, 100], [3, 53, 103]]
    assert batch.final[0, :, :, 0].tolist() == [[151, 152, 153], [154, 154, 154]]
    assert batch.previous[0].tolist() == [[32, 33, 34], [35, 35, 35]]
    assert batch.mask[0].tolist() == [[1, 1, 1], [1, 0, 0]]


def test_noise_is_bounded_and_repeatable(tmp_path: Path) -> None:
    inputs = make_batch(_cache(tmp_path), [Chunk(0, np.array([4]))], CONFIG, anchors_per_chunk=1, num_slots=2).inputs
    first, second = (add_noise(inputs, 0.25, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first.fused, second.fused)
    assert torch.equal(first.keys[5], second.keys[5])
    assert 0 < (first.keys[5].float() - inputs.keys[5].float()).abs().max() <= 0.26
    assert torch.equal(first.anchors, inputs.anchors)


def test_rows_of_a_batch(tmp_path: Path) -> None:
    chunks = [Chunk(0, np.array([3, 6, 8])), Chunk(1, np.array([2, 3]))]
    batch = make_batch(_cache(tmp_path), chunks, CONFIG, anchors_per_chunk=3, num_slots=4)
    assert batch.inputs.anchors.tolist() == [[3, 6, 8], [2, 3, 3]]
    assert batch.inputs.anchor_ids.tolist() == [[14, 17, 19], [23, 24, 24]]
    # The seed is the token before the anchor, whose states lie side by side.
    fused = batch.inputs.fused.view(2, 3, 3, 64)[..., 0]
    assert fused[0].tolist() == [[2, 52, 102], [5, 55, 105], [7, 57, 107]]
    # Slot k is judged by row p + k - 1; the Markov head looks at that row's token.
    assert batch.previous[0, 0].tolist() == [14, 15, 16, 17]
    assert batch.labels[0, 0].tolist() == [15, 16, 17, 18]
    assert batch.final[0, 0, :, 0].tolist() == [153, 154, 155, 156]
    assert batch.mask[0].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]]
    # After an end token the target says nothing, and padding anchors count for nothing.
    assert batch.mask[1].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert batch.labels[1, 0, :2].tolist() == [24, 2]
    # Context K and V: token t at place t, as many as the last anchor may see.
    assert batch.inputs.keys[5].shape == (2, 8, 2, 16)
    assert batch.inputs.keys[5][0, :, 0, 0].tolist() == list(range(8))


def test_states_are_taken_by_layer_not_by_place(tmp_path: Path) -> None:
    """A cache may hold more states than a drafter reads."""
    config = replace(CONFIG, fused_layers=(5, 1))
    batch = make_batch(_cache(tmp_path), [Chunk(0, np.array([4]))], config, anchors_per_chunk=1, num_slots=2)
    assert batch.inputs.fused.view(2, 64)[:, 0].tolist() == [103, 3]


def test_drafters_with_a_cache_of_their_own_get_the_states_of_the_whole_context(tmp_path: Path) -> None:
    chunks = [Chunk(0, np.array([3, 6])), Chunk(1, np.array([2]))]
    batch = make_batch(_cache(tmp_path, all_rows=True), chunks, CACHED_CONFIG, anchors_per_chunk=2, num_slots=2)
    context = batch.inputs.context
    assert context is not None
    assert context.view(2, 6, 3, 64)[0, :, :, 0].tolist() == [[t, 50 + t, 100 + t] for t in range(6)]
    assert context[1, 2:].abs().sum() == 0
    plain = make_batch(_cache(tmp_path / "b"), chunks, CONFIG, anchors_per_chunk=2, num_slots=2)
    assert plain.inputs.context is None
    for name in ("anchors", "anchor_ids", "fused"):
        assert vars(plain.inputs)[name].tolist() == vars(batch.inputs)[name].tolist()
    assert plain.final.tolist() == batch.final.tolist()


def test_an_epoch_holds_every_anchor_once_and_depends_on_seed_and_epoch_only() -> None:
    def order(seed: int, epoch: int) -> list[tuple[int, list[int]]]:
        chunks = epoch_chunks(TEXTS, [0, 1, 2], anchors_per_chunk=2, seed=seed, epoch=epoch)
        return [(chunk.index, chunk.anchors.tolist()) for chunk in chunks]

    assert order(0, 3) == order(0, 3)
    assert order(0, 3) != order(0, 4)
    assert order(0, 3) != order(1, 3)
    seen = sorted((index, anchor) for index, anchors in order(0, 0) for anchor in anchors)
    assert seen == [(0, anchor) for anchor in range(3, 9)] + [(1, 2), (1, 3)]
