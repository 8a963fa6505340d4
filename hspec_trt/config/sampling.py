# SPDX-License-Identifier: Apache-2.0
"""Options of one request, under the names that TensorRT-LLM's and vLLM's ``SamplingParams`` use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Drafting = Literal["on", "off", "auto"]


@dataclass(frozen=True)
class SamplingParams:
    """How one request is sampled and when it ends.

    Attributes:
        max_tokens: new tokens at most; None runs to the engine's ``max_seq_len``.
        temperature: 0 is greedy; unset is 1.
        top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
        seed: 0 <= seed < 2**63; None draws one, so that equal requests differ.
        stop: strings that end the text; the string itself is not part of it.
        stop_token_ids: ids that end the text, besides the model's own.
        ignore_eos: do not end at the model's end tokens.
        drafts: "on", "off", or "auto" (as many drafts a step as pay off).
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    drafts: Drafting = "auto"
