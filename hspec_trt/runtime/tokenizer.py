# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of an engine folder: text to ids and back. Knows its files; requests and streaming are elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

import tokenizers

from hspec_trt.errors import LoadError, RequestError

_BYTE_TOKEN: Final = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Tokenizer:
    """A `tokenizers` tokenizer with what streaming needs to know of its decoder.

    Args:
        data: content of tokenizer.json.

    Raises:
        LoadError: L020 where the library cannot read it.
    """

    def __init__(self, data: bytes) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(data.decode())
            layout = json.loads(data)
        except (ValueError, OSError) as error:
            raise LoadError("L020", f"tokenizer.json cannot be read: {error}", where="tokenizer.json") from error
        except Exception as error:  # the library raises bare Exception for a file that it does not understand
            raise LoadError("L020", f"tokenizer.json is not understood: {error}", where="tokenizer.json") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = frozenset(i for i, token in added.items() if token.special)
        self._bytes = self._byte_tokens(layout)
        self._ids = frozenset(self._tokenizer.get_vocab(with_added_tokens=True).values())

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of a text; `special` adds what the tokenizer puts around one, such as the begin token.

        Raises:
            RequestError: R105 for a text that is not Unicode (a lone surrogate).
        """
        try:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        except (UnicodeEncodeError, TypeError) as error:
            raise RequestError("R105", f"the prompt is not Unicode text: {error}") from error
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the tokens; special tokens and unknown ids are left out."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def has_text(self, token: int) -> bool:
        """False for special tokens and ids without a token."""
        return token in self._ids and token not in self._special

    def is_byte(self, token: int) -> bool:
        """True for a byte-fallback token (``<0x0A>``) of a decoder that joins them."""
        return token in self._bytes

    def _byte_tokens(self, layout: Mapping[str, object]) -> frozenset[int]:
        if "ByteFallback" not in json.dumps(layout.get("decoder")):
            return frozenset()
        vocab = self._tokenizer.get_vocab(with_added_tokens=True)
        return frozenset(i for token, i in vocab.items() if _BYTE_TOKEN.fullmatch(token))
