# SPDX-License-Identifier: Apache-2.0
"""Figures as Markdown tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

from hspec_trt.intervals import Estimate
from hspec_trt.suite.figures import ALL, DrafterFigures
from hspec_trt.suite.run import OFF

_COSTS: Final = ("target", "drafting", "rest", "tokens/s", "against off", "parameters", "KV target", "KV drafter")


def to_json(rows: Sequence[DrafterFigures], skipped: dict[str, int]) -> str:
    """Everything, for programs."""
    return json.dumps({"drafters": [asdict(row) for row in rows], "skipped_prompts": skipped}, indent=1) + "\n"


def to_markdown(rows: Sequence[DrafterFigures]) -> str:
    """Accepted length by task, acceptance by position, and cost."""
    tasks = [task for task in rows[0].lengths if task != ALL]
    drafting = [row for row in rows if row.name != OFF]
    width = max((len(row.positions) for row in drafting), default=0)
    parts = [
        "Mean accepted length: tokens a decode step emits, the bonus token included; 95 % intervals over prompts.",
        _table(
            ["drafter", ALL, *tasks],
            ([row.name, *(_interval(row.lengths[task]) for task in (ALL, *tasks))] for row in drafting),
        ),
        "Share of the drafts verified at a position that were accepted (all before them, too); intervals as above.",
        _table(
            ["drafter", *map(str, range(1, 1 + width)), "steps", "prompts"],
            ([row.name, *_positions(row, width), f"{row.steps:,}", str(row.prompts)] for row in drafting),
        ),
        "Cost: milliseconds of a decode step of one row, intervals over rounds; K/V bytes of a token of context.",
        _table(
            ["drafter", *_COSTS],
            (_cost(row) for row in rows),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _positions(row: DrafterFigures, width: int) -> list[str]:
    return [*(_interval(share, 3) for share in row.positions), *[""] * (width - len(row.positions))]


def _cost(row: DrafterFigures) -> list[str]:
    times, cost, kv = ["", "", "", "", ""], row.cost, row.kv
    if cost is not None:
        parts = (_interval(part, 1, scale=1e3) for part in (cost.target, cost.drafting, cost.rest))
        times = [*parts, _interval(cost.tokens_per_second, 1), _interval(cost.speedup, 2)]
    return [row.name, *times, f"{row.parameters / 1e6:.2f} M", f"{kv.target_per_token:,}", f"{kv.drafter_per_token:,}"]


def _interval(estimate: Estimate, digits: int = 2, *, scale: float = 1.0) -> str:
    value, low, high = (f"{scale * part:.{digits}f}" for part in (estimate.value, estimate.low, estimate.high))
    return f"{value} ({low}-{high})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))
