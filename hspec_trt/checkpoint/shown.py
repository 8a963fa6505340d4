# SPDX-License-Identifier: Apache-2.0
"""Text of files that nobody vouches for, as messages show it: short, and without control characters."""

from __future__ import annotations

from typing import Final

MAX_SHOWN: Final = 80


def printable(text: str, limit: int = MAX_SHOWN) -> str:
    """The text with a question mark for each character that a terminal might act on, at most `limit` characters."""
    clean = "".join(char if char.isprintable() else "?" for char in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."
