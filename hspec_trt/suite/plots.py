# SPDX-License-Identifier: Apache-2.0
"""Three pictures of a comparison: acceptance by position, accepted length by task, memory by concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hspec_trt.intervals import Estimate
from hspec_trt.suite.figures import ALL, DrafterFigures
from hspec_trt.suite.run import LOOKUP, OFF

CONTEXT: Final = 4096
"""Tokens of each request in the picture of memory."""
PAGE_SIZE: Final = 64
ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
NAMES: Final = ("acceptance_by_position.png", "accepted_length_by_task.png", "memory_by_concurrency.png")


def draw_all(rows: Sequence[DrafterFigures], folder: Path) -> list[Path]:
    """Write the three PNG files."""
    drawn = []
    for name, draw in zip(NAMES, (_positions, _tasks, _memory), strict=True):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 4.2), layout="constrained")
        draw(figure.subplots(), [row for row in rows if row.name != OFF])
        figure.savefig(folder / name, dpi=110)
        drawn.append(folder / name)
    return drawn


def _positions(axes: Any, rows: Sequence[DrafterFigures]) -> None:
    for index, row in enumerate(rows):
        places = [place + 1 + 0.05 * (index - (len(rows) - 1) / 2) for place in range(len(row.positions))]
        _with_intervals(axes, places, row.positions, row.name, fmt="o-")
    axes.set(
        title="acceptance by position, 95 % intervals",
        xlabel="position of the draft",
        ylabel="accepted, with all before it",
    )
    _legend_beside(axes)


def _tasks(axes: Any, rows: Sequence[DrafterFigures]) -> None:
    tasks = [ALL, *(task for task in rows[0].lengths if task != ALL)]
    width = 0.8 / len(rows)
    for index, row in enumerate(rows):
        found = [row.lengths[task] for task in tasks]
        places = [place + (index - (len(rows) - 1) / 2) * width for place in range(len(tasks))]
        _with_intervals(axes, places, found, row.name, fmt="o")
    for place in range(1, len(tasks)):
        axes.axvline(place - 0.5, color="0.9", zorder=0)
    axes.set_xticks(range(len(tasks)), tasks, rotation=20)
    axes.set(title="accepted length by task, 95 % intervals", ylabel="tokens a step")
    _legend_beside(axes)


def _with_intervals(axes: Any, places: Sequence[float], found: Sequence[Estimate], name: str, *, fmt: str) -> None:
    below = [max(0.0, one.value - one.low) for one in found]
    above = [max(0.0, one.high - one.value) for one in found]
    heights = [one.value for one in found]
    axes.errorbar(places, heights, [below, above], fmt=fmt, markersize=3.5, elinewidth=0.8, label=name)


def _legend_beside(axes: Any) -> None:
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _memory(axes: Any, rows: Sequence[DrafterFigures]) -> None:
    """Bytes of K/V that live between steps, of the target alone and with a drafter. Drafters alike share a line."""
    alike: dict[tuple[int, ...], list[DrafterFigures]] = {}
    kept = [row for row in rows if row.name != LOOKUP]
    for row in kept:
        sizes = tuple(count * row.kv.request_bytes(CONTEXT, PAGE_SIZE) for count in ROWS)
        alike.setdefault(sizes, []).append(row)
    target = kept[0].kv.target_per_token if kept else 0
    requests = range(len(ROWS))
    axes.plot(requests, [count * CONTEXT * target / 2**20 for count in ROWS], color="black", label="target alone")
    for sizes, drafters in alike.items():
        style = "-" if drafters[0].kv.drafter_per_token else "--"
        names = "\n".join(row.name for row in drafters)
        axes.plot(requests, [size / 2**20 for size in sizes], style, marker=".", label=f"with {names}")
    axes.set_xticks(requests, [str(count) for count in ROWS])
    title = f"K/V of requests of {CONTEXT:,} tokens"
    axes.set(title=title, xlabel="requests at once", ylabel="MiB", yscale="log" if kept else "linear")
    _legend_beside(axes)
