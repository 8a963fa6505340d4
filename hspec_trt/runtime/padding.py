# SPDX-License-Identifier: Apache-2.0
"""Pads a step so that a row's bits do not depend on its company.

ONNX Runtime multiplies a single row by another routine than several, where the weight is not repacked, and a softmax
sums in an order that depends on its length. With the least sizes of `Padding`, every row is computed alike whatever
the step holds (tested bit for bit on the logits).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hspec_trt.runtime.session import StepInputs

KEY_BLOCK: Final = 64
"""Keys that attention runs over come in whole blocks of this many tokens."""


@dataclass(frozen=True)
class Padding:
    """Least sizes of a step.

    Attributes:
        tokens: N.
        row_tokens: T.
        logit_rows: K.
    """

    tokens: int = 2
    row_tokens: int = 2
    logit_rows: int = 2

    @staticmethod
    def needed(*, prepacked: bool, grouped_heads: bool) -> Padding:
        """The smallest padding that keeps a row's bits.

        Args:
            prepacked: weights are repacked; then one row goes through the same routine as several, and a step of one
                token costs a fifth less unpadded (SmolLM2-135M: 53 against 66 ms).
            grouped_heads: several query heads share a K/V head, so attention never multiplies a single row.
        """
        if not prepacked:
            return Padding()
        return Padding(tokens=1, row_tokens=1 if grouped_heads else 2, logit_rows=1)

    def apply(self, inputs: StepInputs, page_size: int) -> StepInputs:
        """The same step, padded.

        Padding tokens are id 0 beyond ``cu_query_lens[R]`` (they write the null page); padding rows of logits repeat
        packed token 0 beyond ``cu_verify_lens[R]``; padding columns of `query_slots` point at packed token 0, those
        of `page_table` at the null page.
        """
        pages_per_block = max(KEY_BLOCK // page_size, 1)
        num_pages = -(-inputs.page_table.shape[1] // pages_per_block) * pages_per_block
        return replace(
            inputs,
            input_ids=_longer(inputs.input_ids, self.tokens),
            verify_rows=_longer(inputs.verify_rows, self.logit_rows),
            query_slots=_wider(inputs.query_slots, self.row_tokens),
            page_table=_wider(inputs.page_table, num_pages),
        )


def _longer(values: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    return values if values.size >= size else np.concatenate([values, np.zeros(size - values.size, np.int32)])


def _wider(values: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    rows, columns = values.shape
    if columns >= size:
        return values
    wide = np.zeros((rows, size), np.int32)
    wide[:, :columns] = values
    return wide
