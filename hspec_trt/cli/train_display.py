# SPDX-License-Identifier: Apache-2.0
"""How a training shows itself: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from hspec_trt.cli.display import ERR, OUT
from hspec_trt.training.evaluate import Acceptance
from hspec_trt.training.run import TrainResult
from hspec_trt.training.trainer import StepResult

_SMOOTHING = 0.95
_LINES_EVERY = 20
"""Steps between lines where there is no terminal."""
_CACHE_LINES = 20
"""Lines about the target's run over the text there."""


class TrainDisplay:
    """A `hspec_trt.training.run.Report` on the error stream; use as a context manager."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[state]}"),
            console=ERR,
            disable=not ERR.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._loss: float | None = None
        self._hits: list[float] = []
        self._cached = 0

    def __enter__(self) -> TrainDisplay:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def note(self, line: str) -> None:
        """A line of information."""
        self._bars.console.print(line, markup=False, soft_wrap=True)

    def cached(self, done: int, total: int) -> None:
        """Conversations that the target has run over."""
        self._move("target over the text", done, total, "")
        share = _CACHE_LINES * done // max(1, total)
        if not ERR.is_terminal and share != self._cached:
            self._cached = share
            self.note(f"target states of {done} of {total} conversations are cached")

    def stepped(self, result: StepResult, steps: int) -> None:
        """An optimizer step is done."""
        self._loss = result.loss if self._loss is None else _mixed(self._loss, result.loss)
        known = [_mixed(old, new) for old, new in zip(self._hits, result.hits, strict=False)]
        self._hits = known + (self._hits[len(known) :] or list(result.hits[len(known) :]))
        state = f"loss {self._loss:.3f}, same first choice per slot {_shares(self._hits)}"
        self._move("training", result.step, steps, state)
        if not ERR.is_terminal and (result.step % _LINES_EVERY == 0 or result.step == steps):
            self.note(f"step {result.step}/{steps}: {state}")

    def evaluated(self, step: int, acceptance: Acceptance) -> None:
        """Held-out conversations were decoded."""
        length, positions = acceptance.mean_length, _shares(acceptance.per_position)
        self.note(f"step {step}: held-out accepted length {length:.3f} tokens a step, per position {positions}")

    def summary(self, result: TrainResult, output: Path) -> None:
        """The final figures."""
        title = f"accepted length on held-out prompts after {result.steps} steps, bonus token included"
        table = Table("prompts", "passes", "length (95 %)", "accepted per position, %", title=title)
        for column in table.columns:
            column.no_wrap = True
        for name, acceptance in result.acceptance.items():
            length = acceptance.length
            interval = f"{length.value:.3f} ({length.low:.3f}-{length.high:.3f})"
            shares = " ".join(f"{100 * share:.0f}" for share in acceptance.per_position)
            table.add_row(name, str(acceptance.steps), interval, shares)
        OUT.print(table)
        OUT.print(f"drafter written to {output}")

    def _move(self, name: str, done: int, total: int, state: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total, state=state)
        self._bars.update(self._tasks[name], completed=done, state=state)


def _mixed(old: float, new: float) -> float:
    return _SMOOTHING * old + (1 - _SMOOTHING) * new


def _shares(values: list[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)
