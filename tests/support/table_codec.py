# SPDX-License-Identifier: Apache-2.0
"""A tokenizer and a grammar so simple that tests in C++ have them too (runtime_cpp/tests/table_codec.h)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hspec_trt.errors import RequestError


class TableCodec:
    """Each token has bytes of its own; none: a special token. Decoding drops one space at the start.

    Args:
        pieces: bytes of each token; a token of one byte of a longer character is a byte token.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = list(pieces)

    @staticmethod
    def of_size(vocab_size: int) -> TableCodec:
        """Letters, some with a space before them, the two bytes of "é", and two special tokens at the start."""
        letters = [bytes([ord("a") + i % 26]) for i in range(vocab_size - 4)]
        spaced = [b" " + piece if i % 5 == 0 else piece for i, piece in enumerate(letters)]
        return TableCodec([b"", b"", b"\xc3", b"\xa9", *spaced])

    def to_json(self) -> list[str]:
        """The pieces in hexadecimal."""
        return [piece.hex() for piece in self.pieces]

    def decode(self, ids: Sequence[int]) -> str:
        text = b"".join(self.pieces[token] for token in ids).decode("utf-8", errors="replace")
        return text.removeprefix(" ")

    def has_text(self, token: int) -> bool:
        return bool(self.pieces[token])

    def is_byte(self, token: int) -> bool:
        return len(self.pieces[token]) == 1 and self.pieces[token][0] >= 0x80

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The longest piece at each place, the first of equal ones."""
        data, ids = text.encode(), []
        while data:
            best = max(
                range(len(self.pieces)), key=lambda i: len(self.pieces[i]) if data.startswith(self.pieces[i]) else 0
            )
            ids.append(best)
            data = data[max(len(self.pieces[best]), 1) :]
        return ids


class ParityGuide:
    """A grammar: even and odd tokens take turns, an even one first.

    Args:
        last: tokens after which it gives up; 0 is never.
    """

    def __init__(self, vocab_size: int, prompt_len: int, last: int) -> None:
        self._prompt_len, self._last = prompt_len, last
        self._odd = np.arange(vocab_size) % 2 == 1

    def rows(self, text: NDArray[np.int32], drafts: Sequence[int]) -> list[NDArray[np.bool_]]:
        count = len(text) - self._prompt_len
        if self._last and count >= self._last:
            raise RequestError("R222", f"guided decoding failed: after {count} tokens")
        masks = [self._mask(count)]
        for number, draft in enumerate(drafts, 1):
            if not masks[-1][draft]:
                break
            masks.append(self._mask(count + number))
        return masks

    def _mask(self, count: int) -> NDArray[np.bool_]:
        return self._odd if count % 2 else ~self._odd
