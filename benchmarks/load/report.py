# SPDX-License-Identifier: Apache-2.0
"""Tables and plots of a load run: medians over rounds with the smallest and the largest, percentiles over requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

PERCENTILES = (50, 95)


def figures(parts: list[dict], clients: int, mode: str) -> dict[str, list[float]]:
    """Figures of one number of clients and mode, one of each per round; times in milliseconds."""
    found: dict[str, list[float]] = {}
    for part in parts:
        if (part["clients"], part["drafts"]) != (clients, mode):
            continue
        answers = part["answers"]
        gaps = np.concatenate([one["gaps"] for one in answers])
        per_token = [(one["end"] - one["first"]) / (one["tokens"] - 1) for one in answers if one["tokens"] > 1]
        row = {
            "tokens/s": sum(one["tokens"] for one in answers) / part["seconds"],
            "requests/s": len(answers) / part["seconds"],
            "ms per token": 1e3 * float(np.median(per_token)),
            "accepted length": sum(one["emitted"] for one in answers) / sum(one["steps"] for one in answers),
            "pages": 100 * part["page_share"],
        }
        for percent in PERCENTILES:
            row[f"TTFT p{percent}"] = 1e3 * float(np.percentile([one["first"] for one in answers], percent))
            row[f"ITL p{percent}"] = 1e3 * float(np.percentile(gaps, percent))
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return found


def keys(parts: list[dict]) -> tuple[list[int], list[str]]:
    """Numbers of clients and modes, in order."""
    return sorted({part["clients"] for part in parts}), list(dict.fromkeys(part["drafts"] for part in parts))


def print_tables(parts: list[dict]) -> None:
    """One Markdown table."""
    columns = {"tokens/s": 1, "TTFT p50": 0, "TTFT p95": 0, "ITL p50": 0, "ITL p95": 0, "ms per token": 0,
               "accepted length": 2, "pages": 1}  # fmt: skip
    clients, modes = keys(parts)
    print("| clients | drafts | " + " | ".join(columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    for count in clients:
        for mode in modes:
            found = figures(parts, count, mode)
            cells = [_spread(found[name], digits) for name, digits in columns.items()]
            print(f"| {count} | {mode} | " + " | ".join(cells) + " |")
    rounds = len({part["round"] for part in parts})
    print(f"\n{rounds} rounds: median [smallest, largest]; TTFT, ITL and time per token in ms, pages in % of the pool")


def _spread(values: list[float], digits: int) -> str:
    middle, low, high = (f"{value:.{digits}f}" for value in (np.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} [{low}, {high}]"


def save_plots(parts: list[dict], path: Path) -> None:
    """Four plots over the number of clients: throughput, time to first token, gaps, accepted length."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    clients, modes = keys(parts)
    shown = {"tokens/s": "Throughput, tokens/s", "TTFT p50": "Time to first token, median, ms",
             "ITL p50": "Gap between events, median, ms", "accepted length": "Tokens of a decode step"}  # fmt: skip
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7), layout="constrained")
    for axis, (name, title) in zip(axes.flat, shown.items(), strict=True):
        for mode in modes:
            rows = [figures(parts, count, mode)[name] for count in clients]
            middle = np.array([np.median(row) for row in rows])
            spread = [middle - [min(row) for row in rows], [max(row) for row in rows] - middle]
            axis.errorbar(range(len(clients)), middle, spread, label=f"drafts {mode}", marker="o", capsize=3)
        axis.set_xticks(range(len(clients)), [str(count) for count in clients])
        axis.set_title(title, fontsize=10)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0, 0].legend()
    for axis in axes[1]:
        axis.set_xlabel("clients")
    figure.savefig(path, dpi=90)
