# SPDX-License-Identifier: Apache-2.0
"""Penalties, biases, bad words and least lengths told from their definitions: REF for texts that use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.edits import BANNED
from tests.support.scripted import Row, TextModel, draw


def plain_edits(
    params: SamplingParams,
    prompt: list[int],
    text: list[int],
    vocab_size: int,
    end_ids: Collection[int] = (),
    words: Sequence[list[int]] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """Scales and biases ``[V]`` after `text`; `end_ids` are what `min_tokens` bans."""
    counts, seen = Counter(text), {*prompt, *text}
    scales = np.array([params.repetition_penalty if t in seen else 1.0 for t in range(vocab_size)], np.float32)
    biases = np.zeros(vocab_size)
    for token, bias in params.logit_bias:
        biases[token] += bias
    for token, count in counts.items():
        biases[token] -= params.presence_penalty + params.frequency_penalty * count
    banned = set(end_ids) if len(text) < params.min_tokens else set()
    context = [*prompt, *text]
    for word in words:
        if len(word) == 1 or context[-len(word) + 1 :] == word[:-1]:
            banned.add(word[-1])
    biases = np.array([BANNED if t in banned else b for t, b in enumerate(biases)], np.float32)
    return scales, biases


def generate_edited(
    model: TextModel, prompt: list[int], count: int, row: Row, params: SamplingParams, end_ids: Collection[int] = ()
) -> list[int]:
    """REF: no steps, no drafts; it does not end at an end token."""
    text: list[int] = []
    for _ in range(count):
        ids = np.array([*prompt, *text], np.int64)
        logits = model.logits(model.digest(ids), int(ids[-1]))
        scales, biases = plain_edits(params, prompt, text, model.vocab_size, end_ids)
        edited = np.where(logits > 0, logits / scales, logits * scales) + biases
        text.append(draw(logits, ids.size, row, edited.astype(np.float32))[0])
    return text
