# SPDX-License-Identifier: Apache-2.0
"""How long work tells what it is doing, without knowing who shows it.

A long step takes a `Progress`; the command line gives one that draws bars, a program may give `SILENT`.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives stages and how far they are."""

    def stage(self, name: str, total: int | None = None) -> None:
        """A new stage begins. `total` is its size in any unit; None where nobody knows."""

    def advance(self, amount: int) -> None:
        """The current stage went on by `amount` of its unit."""

    def note(self, text: str) -> None:
        """A line that the user should see."""


class _Silent:
    def stage(self, name: str, total: int | None = None) -> None:
        return

    def advance(self, amount: int) -> None:
        return

    def note(self, text: str) -> None:
        return


SILENT: Progress = _Silent()
