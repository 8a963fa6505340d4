# SPDX-License-Identifier: Apache-2.0
"""Reads typed values out of GGUF metadata.

Owns the wording of metadata faults (C019). It does not know which keys a model or tokenizer has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from hspec_trt.checkpoint.gguf_file import GgufValue
from hspec_trt.errors import CheckpointError


@dataclass(frozen=True)
class Metadata:
    """The metadata of a GGUF file.

    Attributes:
        where: the file, for messages.
    """

    values: Mapping[str, GgufValue]
    where: str

    def has(self, key: str) -> bool:
        """True where the key is there."""
        return key in self.values

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self.values.get(key, default)
        return value if isinstance(value, str) else self._wrong(key, "a string")

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            return self._wrong(key, "a whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A number."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return self._wrong(key, "a number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """A boolean."""
        value = self.values.get(key, default)
        return value if isinstance(value, bool) else self._wrong(key, "true or false")

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            return self._wrong(key, "a list of strings")
        return [item for item in value if isinstance(item, str)]

    def integers(self, key: str) -> list[int]:
        """A list of whole numbers."""
        value = self.values.get(key)
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            return self._wrong(key, "a list of whole numbers")
        return [item for item in value if isinstance(item, int)]

    def numbers(self, key: str) -> list[float]:
        """A list of numbers."""
        value = self.values.get(key)
        if not isinstance(value, list) or not all(type(item) in (int, float) for item in value):
            return self._wrong(key, "a list of numbers")
        return [float(item) for item in value]

    def _wrong(self, key: str, needed: str) -> NoReturn:
        found = f"metadata {key} is not {needed}" if self.has(key) else f"metadata {key} is missing"
        raise CheckpointError("C019", found, needed=needed, where=self.where)
