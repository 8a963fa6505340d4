# SPDX-License-Identifier: Apache-2.0
"""REF: decoding without speculation, batch, chunks or scheduler: one token of one request a step, on a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hspec_trt.runtime.session import Session, StepInputs


@dataclass(frozen=True)
class Text:
    """New tokens and the log-probability of each under the target's raw distribution."""

    ids: list[int]
    logprobs: list[np.float32]


def plain_decode(
    session: Session,
    prompt: Sequence[int],
    count: int,
    *,
    temperature: float = 0.0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    top_k: int = 0,
    seed: int = 0,
) -> Text:
    """`count` new tokens. The pool is the caller's to give: pages 1, 2, ... are used in order."""
    page_size, ids, logprobs = session.limits.page_size, list(prompt), []
    for position in range(len(prompt) + count - 1):
        pages = np.arange(1, position // page_size + 2, dtype=np.int32)[None]
        last = position >= len(prompt) - 1
        outputs = session.step(
            StepInputs(
                input_ids=_int32(ids[position]),
                cu_query_lens=_int32(0, 1),
                context_lens=_int32(position),
                query_slots=np.zeros((1, 1), np.int32),
                verify_rows=_int32(0),
                cu_verify_lens=_int32(0, int(last)),
                draft_rows=np.zeros(0, np.int32),
                page_table=pages,
                temperature=np.array([temperature], np.float32),
                top_p=np.array([top_p], np.float32),
                min_p=np.array([min_p], np.float32),
                top_k=_int32(top_k),
                seed=np.array([seed], np.int64),
                next_ids=_int32(ids[position + 1] if position + 1 < len(ids) else 0),
            )
        )
        if last:
            ids.append(int(outputs.emitted_ids[0, 0]))
            logprobs.append(outputs.emitted_logprobs[0, 0])
    return Text(ids[len(prompt) :], logprobs)


def _int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)
