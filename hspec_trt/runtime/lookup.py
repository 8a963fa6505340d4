# SPDX-License-Identifier: Apache-2.0
"""Drafts made on the host: by looking up what followed the last time the text ended like this, or by a script."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

NGRAM_SIZES: Final = (4, 3, 2)
"""Lengths of the text's end that are looked for, longest first."""


class HostDrafts(Protocol):
    """A source of drafts that needs no engine; the engine verifies whatever drafts a row carries."""

    def propose(self, tokens: NDArray[np.int32], limit: int) -> NDArray[np.int32]:
        """Drafts for a text: int32 ``[0..limit]``.

        Args:
            tokens: int32 ``[n]``, prompt and output; each call extends the text of the one before.
            limit: drafts wanted at most.
        """


class ScriptedDrafts:
    """Right for so many drafts and then wrong, given the text that will come: forces accepted lengths.

    Args:
        text: int32 ``[n]``, prompt and the output that is known to follow.
        right: drafts that are right, 0 to G.
    """

    def __init__(self, text: NDArray[np.int32], right: int, vocab_size: int) -> None:
        self._text, self._right, self._vocab_size = text, right, vocab_size

    def propose(self, tokens: NDArray[np.int32], limit: int) -> NDArray[np.int32]:
        """See `HostDrafts`."""
        drafts = self._text[tokens.size : tokens.size + limit].copy()
        drafts[self._right :] = (drafts[self._right :] + 1) % self._vocab_size
        return drafts


class NgramIndex:
    """Where each short run of tokens ended last in one text."""

    def __init__(self) -> None:
        self._ends: dict[bytes, int] = {}
        self._indexed = 0

    def propose(self, tokens: NDArray[np.int32], limit: int) -> NDArray[np.int32]:
        """Tokens that followed an earlier occurrence of the text's end; empty where nothing matches."""
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
