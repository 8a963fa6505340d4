# SPDX-License-Identifier: Apache-2.0
"""What is common to those who put answers into OpenAI's objects."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import BaseModel

from hspec_trt.runtime.results import RequestOutput
from hspec_trt.runtime.tokenizer import Tokenizer
from hspec_trt.serving.openai.pieces import Piece
from hspec_trt.serving.openai.replies import Usage


@dataclass(frozen=True)
class Heading:
    """What every object of one request carries."""

    id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def new(cls, prefix: str, model: str) -> Heading:
        """A heading with an id of its own."""
        return cls(f"{prefix}-{secrets.token_hex(16)}", model)


class Writer(Protocol):
    """Puts the answers of one request into objects."""

    def whole(self, outputs: list[RequestOutput]) -> BaseModel:
        """The answers, once all have ended."""

    def opening(self, outputs: list[RequestOutput]) -> Sequence[BaseModel]:
        """What a stream begins with, before there is any token."""

    def chunk(self, piece: Piece) -> BaseModel | None:
        """What a piece adds; None where there is nothing to show yet."""

    def closing(self, usage: Usage) -> BaseModel:
        """The last object of a stream whose client wants the usage."""


class TokenTexts:
    """Texts of single tokens, for lists of log-probabilities.

    Args:
        tokenizer: None names a token by its id.
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer

    def data(self, token: int) -> bytes:
        """Bytes of a token; a character may be spread over several."""
        return str(token).encode() if self._tokenizer is None else self._tokenizer.token_bytes(token)

    def text(self, token: int) -> str:
        """Text of a token; a half character is written as ``bytes:\\\\xf0\\\\x9f``, as OpenAI does."""
        data = self.data(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
