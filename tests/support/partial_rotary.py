# SPDX-License-Identifier: Apache-2.0
"""Lets transformers' Llama rotate a part of a head's channels, as its own models with ``partial_rotary_factor`` do.

Its Llama computes the shorter table where scaling asks for it but rotates with code that needs a whole one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from transformers.models.glm4_moe import modeling_glm4_moe as part
from transformers.models.llama import modeling_llama as llama


def _shorter(config: object, device: object = None, seq_len: object = None) -> tuple[torch.Tensor, float]:
    inverse, scaling = part.Glm4MoeRotaryEmbedding.compute_default_rope_parameters(config, device)
    return inverse, scaling


@contextmanager
def rotated_in_part() -> Iterator[None]:
    """Llama models that are made and run inside rotate the first channels only."""
    with (
        mock.patch.object(llama, "apply_rotary_pos_emb", part.apply_rotary_pos_emb),
        mock.patch.object(llama.LlamaRotaryEmbedding, "compute_default_rope_parameters", staticmethod(_shorter)),
    ):
        yield
