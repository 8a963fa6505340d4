# SPDX-License-Identifier: Apache-2.0
"""Prompt-lookup drafts: what followed the last time the text ended like this. Needs no drafter and no weights."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

NGRAM_SIZES: Final = (4, 3, 2)
"""Lengths of the text's end that are looked for, longest first."""


class NgramIndex:
    """Where each short run of tokens ended last in one text."""

    def __init__(self) -> None:
        self._ends: dict[bytes, int] = {}
        self._indexed = 0

    def propose(self, tokens: NDArray[np.int32], limit: int) -> NDArray[np.int32]:
        """Tokens that followed an earlier occurrence of the text's end.

        Args:
            tokens: int32 ``[n]``, prompt and output; each call extends the text of the one before.
            limit: drafts wanted at most.

        Returns:
            int32 ``[0..limit]``; empty where nothing matches.
        """
        self._extend(tokens)
        for size in NGRAM_SIZES:
            end = self._ends.get(tokens[-size:].tobytes()) if len(tokens) > size else None
            if end is not None:
                return tokens[end : end + limit]
        return tokens[:0]

    def _extend(self, tokens: NDArray[np.int32]) -> None:
        """Index every run that ends before the last token."""
        for end in range(max(self._indexed, 1), len(tokens)):
            for size in NGRAM_SIZES:
                if size <= end:
                    self._ends[tokens[end - size : end].tobytes()] = end
        self._indexed = len(tokens)
