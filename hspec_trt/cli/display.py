# SPDX-License-Identifier: Apache-2.0
"""How commands show things: progress bars, tables, byte counts."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

ERR = Console(stderr=True, highlight=False)
OUT = Console(highlight=False, soft_wrap=True)


def bytes_text(count: float) -> str:
    """A byte count for people: ``12.3 MiB``."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def key_value_table(title: str, rows: dict[str, object]) -> Table:
    """Two columns under a title."""
    table = Table(title=title, show_header=False, title_justify="left", title_style="bold")
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in rows.items():
        table.add_row(key, escape(str(value)))
    return table


class Bars:
    """A `hspec_trt.progress.Progress` that draws one bar per stage on the error stream.

    Use as a context manager; with `quiet` nothing is drawn and notes are kept back.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=ERR,
            disable=quiet,
        )
        self._task: TaskID | None = None
        self._done = 0
        self._total: int | None = None

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._bars.stop()

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage; the one before it is done."""
        self._finish()
        self._done, self._total = 0, total
        self._task = self._bars.add_task(name, total=total)

    def advance(self, amount: int) -> None:
        """Move the current bar."""
        if self._task is not None:
            self._bars.advance(self._task, amount)

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        if not self._quiet:
            self._bars.console.print(text, markup=False)

    def _finish(self) -> None:
        if self._task is not None:
            total = self._total or 1
            self._bars.update(self._task, total=total, completed=total)
