# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of an engine folder: text to ids and back. Knows its files; requests and streaming are elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tokenizers

from hspec_trt.errors import LoadError, RequestError

_BYTE_TOKEN: Final = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_SPACE_MARK: Final = "\u2581"


def _byte_of_char() -> dict[str, int]:
    """The byte behind each visible character that byte-level tokenizers write: printable ones stand for themselves,
    the others for the characters from 256 on, in order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF_CHAR: Final = _byte_of_char()


def check_unicode(text: str) -> int:
    """The bytes of a text in UTF-8.

    Raises:
        RequestError: R105 for half characters (lone surrogates), which are no text.
    """
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        found = f"character {error.start} of the prompt is half of one, {half}"
        raise RequestError("R105", found, needed="Unicode text") from error


def _keeps_all(pre_tokenizer: Mapping[str, Any] | None) -> bool:
    """Whether a pre-tokenizer cuts a text without removing any of it."""
    parts = (pre_tokenizer or {}).get("pretokenizers") or [pre_tokenizer]
    kinds = [(part or {}).get("type") for part in parts]
    removes = any((part or {}).get("behavior") == "Removed" for part in parts)
    return set(kinds) <= {"ByteLevel", "Split", "Digits"} and "ByteLevel" in kinds and not removes


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
        self._added = frozenset(added)
        self._is_byte_level = "ByteLevel" in json.dumps(layout.get("decoder"))
        self._special = frozenset(i for i, token in added.items() if token.special)
        self._bytes = self._byte_tokens(layout)
        self._most_bytes = self._longest_token(layout)
        self._ids = frozenset(self._tokenizer.get_vocab(with_added_tokens=True).values())

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of a text; `special` adds what the tokenizer puts around one, such as the begin token.

        Raises:
            RequestError: R105 for a text that is not Unicode (a lone surrogate).
        """
        check_unicode(text)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def least_tokens(self, text: str) -> int:
        """A number of tokens that the text has at least, without encoding it; 0 where this tokenizer allows none.

        Raises:
            RequestError: R105, as `encode`.
        """
        num_bytes = check_unicode(text)
        return -(-num_bytes // self._most_bytes) if self._most_bytes else 0

    def encode_prompt(self, text: str, longest: int, *, special: bool = True) -> list[int]:
        """Ids of a prompt; one that is far too long is refused before it is worked through.

        Args:
            longest: tokens that one request can reach.

        Raises:
            RequestError: R105, as `encode`; R101 where the text's bytes alone say that it has `longest` tokens or more.
                Tokenizers that do not work on bytes allow no such answer.
        """
        least = self.least_tokens(text)
        if least >= longest:
            found = f"a prompt of {len(text.encode())} bytes has at least {least} tokens, too many for {longest}"
            raise RequestError("R101", found, fix=f"The longest allowed prompt is {longest - 1} tokens")
        return self.encode(text, special=special)

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

    def token_bytes(self, token: int) -> bytes:
        """Bytes of one token by itself, special ones as they are written; empty for an id without a token."""
        piece = self._tokenizer.id_to_token(token)
        if piece is None or token in self._added:
            return (piece or "").encode()
        if self._is_byte_level:
            return bytes(_BYTE_OF_CHAR[char] for char in piece if char in _BYTE_OF_CHAR)
        if token in self._bytes:
            return bytes([int(piece[3:5], 16)])
        return piece.replace(_SPACE_MARK, " ").encode()

    def _longest_token(self, layout: Mapping[str, Any]) -> int:
        """Bytes of text that one token stands for at most; 0 where no such number is certain.

        It is where nothing is taken out of a text before it is cut (a byte-level BPE without normalizer, added tokens
        that take no spaces along) and every byte then has a token.
        """
        loses = any(token["lstrip"] or token["rstrip"] for token in layout.get("added_tokens") or [])
        model = layout.get("model") or {}
        if model.get("type") != "BPE" or layout.get("normalizer") or loses or not self._is_byte_level:
            return 0
        if not _keeps_all(layout.get("pre_tokenizer")):
            return 0
        vocab = self._tokenizer.get_vocab(with_added_tokens=True)
        if not all(char in vocab for char in _BYTE_OF_CHAR):
            return 0
        return max(len(self.token_bytes(token)) for token in vocab.values())

    def _byte_tokens(self, layout: Mapping[str, object]) -> frozenset[int]:
        if "ByteFallback" not in json.dumps(layout.get("decoder")):
            return frozenset()
        vocab = self._tokenizer.get_vocab(with_added_tokens=True)
        return frozenset(i for token, i in vocab.items() if _BYTE_TOKEN.fullmatch(token))
