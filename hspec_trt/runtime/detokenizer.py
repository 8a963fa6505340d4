# SPDX-License-Identifier: Apache-2.0
"""Text from tokens as they come: no broken characters, no part of a stop string, and nothing that changes later.

The chunks put together are always the decoding of all tokens at once. It knows a decoder, not requests or steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

REPLACEMENT: Final = "\ufffd"


class Decoder(Protocol):
    """What is needed of a tokenizer."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the tokens, special ones left out."""

    def has_text(self, token: int) -> bool:
        """False for special tokens and ids without a token, which decoding leaves out."""

    def is_byte(self, token: int) -> bool:
        """True for a byte-fallback token, whose text depends on the byte tokens that follow."""


class Codec(Decoder, Protocol):
    """What is needed of a tokenizer by those who also make tokens."""

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of a text; `special` adds what the tokenizer puts around one."""


class IncrementalDecoder:
    """Decodes a window of the last tokens, so that the cost of a token does not grow with the text.

    The window starts where the text was whole. It keeps a token that shows something before the new ones, because
    some decoders drop the space that starts a text.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._window: list[int] = []
        self._shown_len = 0  # tokens of the window whose text was given out
        self._shown = ""  # their text, decoded as the start of the window

    def push(self, ids: Sequence[int]) -> str:
        """Add tokens; returns the text that no later token can change."""
        new = [token for token in ids if self._decoder.has_text(token)]
        if not new:
            return ""
        self._window += new
        text = self._decoder.decode(self._window)
        if text.endswith(REPLACEMENT) or self._decoder.is_byte(new[-1]):
            return ""
        fresh = text[len(self._shown) :]
        self._slide(text)
        return fresh

    def flush(self) -> str:
        """The text that was held back, whole or not."""
        fresh = self._decoder.decode(self._window)[len(self._shown) :]
        self._slide(self._shown + fresh)
        return fresh

    def _slide(self, text: str) -> None:
        tail = self._window[self._shown_len :]
        tail_text = self._decoder.decode(tail)
        if tail_text.strip():
            self._window, self._shown = tail, tail_text
        else:
            self._shown = text
        self._shown_len = len(self._window)


class TextStream:
    """The text of one answer, chunk by chunk, ended by the first of its stop strings.

    Attributes:
        stopped: a stop string was found; the text before it is out and nothing follows.
        stop: the string that was found.
    """

    def __init__(self, decoder: Decoder, stop: Sequence[str] = ()) -> None:
        self._incremental = IncrementalDecoder(decoder)
        self._stops = tuple(stop)
        self._held = ""
        self.stopped = False
        self.stop: str | None = None

    def push(self, ids: Sequence[int]) -> str:
        """Add tokens; returns the next chunk, which may be empty."""
        return "" if self.stopped else self._filter(self._incremental.push(ids), last=False)

    def flush(self) -> str:
        """The last chunk, once no token follows."""
        return "" if self.stopped else self._filter(self._incremental.flush(), last=True)

    def _filter(self, fresh: str, *, last: bool) -> str:
        text = self._held + fresh
        if self._stops and fresh:
            # Complete first, however the text was cut into tokens; of several complete at one character, the longest.
            starts = ((text.find(s), s) for s in self._stops if s in text)
            found = min(((start + len(s), start, s) for start, s in starts), default=None)
            if found is not None:
                self.stopped, self.stop, self._held = True, found[2], ""
                return text[: found[1]]
        keep = 0 if last else self._possible_stop(text)
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut]

    def _possible_stop(self, text: str) -> int:
        """Length of the longest end of `text` that may grow into a stop string."""
        longest = max((len(s) for s in self._stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(s.startswith(text[-size:]) for s in self._stops):
                return size
        return 0
