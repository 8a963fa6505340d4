# SPDX-License-Identifier: Apache-2.0
"""Figures as Markdown tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

from hspec_trt.intervals import Estimate
from hspec_trt.suite.figures import ALL, DrafterFigures, step_seconds
from hspec_trt.suite.run import OFF

_COSTS: Final = ("target", "drafting", "rest", "tokens/s", "against off", "parameters", "KV target", "KV drafter")


def to_json(rows: Sequence[DrafterFigures], skipped: dict[str, int]) -> str:
    """Everything, for programs."""
    return json.dumps({"drafters": [asdict(row) for row in rows], "skipped_prompts": skipped}, indent=1) + "\n"


def to_markdown(rows: Sequence[DrafterFigures]) -> str:
    """Accepted length by task, acceptance by position, and cost."""
    tasks = [task for task in rows[0].lengths if task != ALL]
    drafting = [row for row in rows if row.name != OFF]
    parts = [
        "Mean accepted length: tokens a decode step emits, the bonus token included; 95 % intervals over prompts.",
        _table(
            ["drafter", ALL, *tasks],
            ([row.name, *(_interval(row.lengths[task]) for task in (ALL, *tasks))] for row in drafting),
        ),
        "Share of the drafts verified at a position that were accepted (all before them, too).",
        _table(
            ["drafter", *map(str, range(1, 1 + max(len(row.positions) for row in drafting))), "steps", "prompts"],
            (
                [row.name, *(f"{share:.3f}" for share in row.positions), f"{row.steps:,}", str(row.prompts)]
                for row in drafting
            ),
        ),
        "Cost: milliseconds of a decode step of one row; K/V bytes of a token of context.",
        _table(
            ["drafter", *_COSTS],
            (_cost(row) for row in rows),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _cost(row: DrafterFigures) -> list[str]:
    times = ["", "", "", "", ""]
    if row.timing is not None and row.speedup is not None:
        step = step_seconds(row.name, row.timing)
        target = row.timing.plain if row.name == OFF else row.timing.verify
        own = step - row.timing.rest - target
        speed = row.lengths[ALL].value / step
        shown = (target, own, row.timing.rest)
        times = [*(f"{1e3 * part:.1f}" for part in shown), f"{speed:.1f}", f"{row.speedup.value:.2f}x"]
    kv = row.kv
    return [row.name, *times, f"{row.parameters / 1e6:.2f} M", f"{kv.target_per_token:,}", f"{kv.drafter_per_token:,}"]


def _interval(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} ({estimate.low:.2f}-{estimate.high:.2f})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))
