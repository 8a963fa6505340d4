# SPDX-License-Identifier: Apache-2.0
"""Fills a teacher cache: prefill of the target over packs of conversations.

Owns packing, order and progress; the arithmetic is `hspec_trt.modeling.target`, the files `hspec_trt.training.cache`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from hspec_trt.config.target import TargetConfig
from hspec_trt.modeling.target import TargetModel, TargetStates
from hspec_trt.training.cache import CachedStates, CacheKey, TeacherCache
from hspec_trt.training.data import Conversation

PACK_TOKENS = 1024
"""Tokens of one prefill: more does not run faster on a CPU and leaves its caches."""
SAMPLED_BYTES = 4096
"""Bytes at each end of a tensor that its fingerprint covers."""


def fingerprint_target(config: TargetConfig, weights: Mapping[str, Tensor]) -> str:
    """Hash of the configuration, of every tensor's name and shape, and of the ends of its values."""
    digest = hashlib.sha256(repr(config).encode())
    for name in sorted(weights):
        flat = weights[name].detach().reshape(-1)
        digest.update(f"{name} {tuple(weights[name].shape)}".encode())
        for end in (flat[: SAMPLED_BYTES // 4], flat[-SAMPLED_BYTES // 4 :]):
            digest.update(end.float().cpu().numpy().tobytes())
    return digest.hexdigest()


def fingerprint_data(conversations: Sequence[Conversation]) -> str:
    """Hash of the conversations in their order."""
    digest = hashlib.sha256()
    for conversation in conversations:
        digest.update(repr((conversation.prompt_ids, conversation.response_ids)).encode())
    return digest.hexdigest()


def fill_cache(
    cache: TeacherCache, target: TargetModel, *, on_progress: Callable[[int], None] = lambda done: None
) -> None:
    """Run the target over what the cache lacks; safe to interrupt, the next call goes on.

    Args:
        on_progress: called with the number of conversations done.
    """
    for start, stop in _packs(cache):
        sequences = [torch.tensor(c.token_ids) for c in cache.conversations[start:stop]]
        with torch.inference_mode():
            states = target.prefill(sequences, hidden_layers=cache.key.hidden_layers, kv_layers=cache.key.kv_layers)
        _store(cache, states, start, stop)
        cache.commit(stop)
        on_progress(stop)


def cache_key(
    target: TargetModel,
    conversations: Sequence[Conversation],
    *,
    hidden_layers: Sequence[int],
    kv_layers: Sequence[int],
    all_rows: bool = False,
) -> CacheKey:
    """The key of the cache that `fill_cache` would make."""
    config = target.config
    return CacheKey(
        target=fingerprint_target(config, target.weights),
        data=fingerprint_data(conversations),
        hidden_layers=tuple(hidden_layers),
        kv_layers=tuple(kv_layers),
        hidden_size=config.hidden_size,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        compute_dtype=str(target.dtype).removeprefix("torch."),
        all_rows=all_rows,
    )


def _packs(cache: TeacherCache) -> Iterator[tuple[int, int]]:
    start = cache.num_done
    while start < len(cache.conversations):
        stop, tokens = start, 0
        while stop < len(cache.conversations) and (
            stop == start or tokens + len(cache.conversations[stop].token_ids) <= PACK_TOKENS
        ):
            tokens += len(cache.conversations[stop].token_ids)
            stop += 1
        yield start, stop
        start = stop


def _store(cache: TeacherCache, states: TargetStates, start: int, stop: int) -> None:
    key = cache.key
    hidden = torch.stack([*(states.hidden[layer] for layer in key.hidden_layers), states.final], dim=1)
    token = 0
    for index in range(start, stop):
        conversation = cache.conversations[index]
        end = token + len(conversation.token_ids)
        first = cache.first_row(conversation)
        rows = slice(token + first, end)
        layers = [torch.stack([states.keys[i][token:end], states.values[i][token:end]], 1) for i in key.kv_layers]
        kv = torch.stack(layers, 1) if layers else torch.empty(end - token, 0, 2, key.num_kv_heads, key.head_dim)
        kept, states_kept = (part.to(torch.bfloat16).cpu() for part in (kv, hidden[rows]))
        cache.write(index, CachedStates(kept, states_kept, first))
        token = end
