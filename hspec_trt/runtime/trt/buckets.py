# SPDX-License-Identifier: Apache-2.0
"""Decode steps come in a few shapes, so that each shape's CUDA graph is recorded once and used again.

A step is padded up to its bucket as the contract allows: idle rows, tokens beyond ``cu_query_lens[R]``, rows of logits
beyond ``cu_verify_lens[R]``, the null page. Rows to draft for are repeated, which computes the same drafts twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from hspec_trt.runtime.padding import KEY_BLOCK
from hspec_trt.runtime.session import Limits, StepInputs

_Scalar = TypeVar("_Scalar", bound=np.generic)
LEAST: Final = 2
"""Least tokens and rows of logits: a matrix product of one row may take another path, with other rounding."""


@dataclass(frozen=True)
class StepShape:
    """The sizes of one step, by the contract's names, and whether it is a decode bucket."""

    R: int
    N: int
    T: int
    K: int
    D: int
    M: int
    decode: bool


def shape_for(inputs: StepInputs, limits: Limits) -> StepShape:
    """The shape that a step is padded to.

    Rows of at most G + 1 tokens make a decode step: R and M go up to a power of two, T to 1 or G + 1, K and N to R
    whole rows, D to 0 or R. Other steps keep their sizes but for M, which comes in whole blocks of keys, and `LEAST`.
    """
    rows, pages = inputs.page_table.shape
    longest, width = inputs.query_slots.shape[1], limits.num_drafts + 1
    drafts, most_pages = inputs.draft_rows.size, limits.max_pages_per_row
    least_pages = max(KEY_BLOCK // limits.page_size, 1)
    if longest <= width and inputs.extras is None:
        rows = min(_power_of_two(rows), limits.max_rows)
        row_tokens = 1 if longest == 1 else width
        tokens = max(rows * row_tokens, min(LEAST, limits.max_rows * width))
        pages = min(_power_of_two(max(pages, least_pages)), most_pages)
        row_tokens = max(row_tokens, min(LEAST, width))
        return StepShape(rows, tokens, row_tokens, tokens, rows if drafts else 0, pages, decode=True)
    tokens = max(inputs.input_ids.size, min(LEAST, limits.max_tokens))
    logit_rows = max(inputs.verify_rows.size, min(LEAST, limits.max_rows * width))
    pages = min(-(-pages // least_pages) * least_pages, most_pages)
    return StepShape(rows, tokens, max(longest, min(LEAST, limits.max_tokens)), logit_rows, drafts, pages, decode=False)


def pad_step(inputs: StepInputs, shape: StepShape) -> StepInputs:
    """The same step in that shape."""
    rows = shape.R
    idle_query = np.full(rows + 1 - inputs.cu_query_lens.size, inputs.cu_query_lens[-1], np.int32)
    idle_verify = np.full(rows + 1 - inputs.cu_verify_lens.size, inputs.cu_verify_lens[-1], np.int32)
    draft_rows = inputs.draft_rows
    repeated = np.full(shape.D - draft_rows.size, draft_rows[0] if draft_rows.size else 0, np.int32)
    return replace(
        inputs,
        input_ids=_longer(inputs.input_ids, shape.N),
        cu_query_lens=np.concatenate([inputs.cu_query_lens, idle_query]),
        context_lens=_longer(inputs.context_lens, rows),
        query_slots=_larger(inputs.query_slots, rows, shape.T),
        verify_rows=_longer(inputs.verify_rows, shape.K),
        cu_verify_lens=np.concatenate([inputs.cu_verify_lens, idle_verify]),
        draft_rows=np.concatenate([draft_rows, repeated]),
        page_table=_larger(inputs.page_table, rows, shape.M),
        temperature=_longer(inputs.temperature, rows),
        top_p=_longer(inputs.top_p, rows),
        min_p=_longer(inputs.min_p, rows),
        top_k=_longer(inputs.top_k, rows),
        seed=_longer(inputs.seed, rows),
        next_ids=None if inputs.next_ids is None else _longer(inputs.next_ids, rows),
    )


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _longer(values: NDArray[_Scalar], size: int) -> NDArray[_Scalar]:
    if values.size == size:
        return values
    return np.concatenate([values, np.zeros(size - values.size, values.dtype)])


def _larger(values: NDArray[np.int32], rows: int, columns: int) -> NDArray[np.int32]:
    if values.shape == (rows, columns):
        return values
    large = np.zeros((rows, columns), np.int32)
    large[: values.shape[0], : values.shape[1]] = values
    return large
