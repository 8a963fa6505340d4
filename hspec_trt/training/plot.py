# SPDX-License-Identifier: Apache-2.0
"""A picture of a training: loss and, on held-out prompts, accepted length and acceptance per position."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hspec_trt.training.evaluate import Acceptance

SMOOTHED_STEPS = 25


@dataclass
class Curves:
    """What a log holds: per step the loss and the share of equal first choices in slot 1, and the evaluations."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    first_hits: list[float] = field(default_factory=list)
    evaluated: list[int] = field(default_factory=list)
    acceptance: list[Acceptance] = field(default_factory=list)


def read_log(path: Path) -> Curves:
    """Curves of a run's log; where steps were run twice after an interrupt, the later lines count."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    curves = Curves()
    for line in sorted({_key(line): line for line in lines}.values(), key=lambda line: line["step"]):
        if "loss" in line:
            curves.steps.append(line["step"])
            curves.losses.append(line["loss"])
            curves.first_hits.append(line["hits"][0])
        elif line.get("final", "all") == "all":
            curves.evaluated.append(line["step"])
            curves.acceptance.append(Acceptance(**line["acceptance"]))
    return curves


def plot_log(log: Path, picture: Path) -> None:
    """Draw a run's log into a PNG file."""
    from matplotlib.figure import Figure

    curves = read_log(log)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    left.plot(curves.steps, _smooth(curves.losses), color="tab:blue")
    left.set(title="loss", xlabel="step")
    middle.plot(curves.steps, _smooth(curves.first_hits), color="tab:green", label="slot 1 hit, training")
    for slot in range(min(3, len(curves.acceptance[0].offered) if curves.acceptance else 0)):
        shares = [acceptance.per_position[slot] for acceptance in curves.acceptance]
        middle.plot(curves.evaluated, shares, marker="o", label=f"position {slot + 1}, held out")
    middle.set(title="acceptance", xlabel="step")
    middle.legend(fontsize=7)
    lengths = [acceptance.mean_length for acceptance in curves.acceptance]
    right.plot(curves.evaluated, lengths, marker="o", color="tab:red")
    right.set(title="accepted length, held out", xlabel="step")
    figure.savefig(picture, dpi=110)


def _key(line: dict[str, object]) -> tuple[object, ...]:
    return line["step"], "loss" in line, line.get("final", "")


def _smooth(values: list[float]) -> NDArray[np.float64]:
    """Mean over the last `SMOOTHED_STEPS` values."""
    sums = np.cumsum(np.insert(np.array(values, dtype=np.float64), 0, 0.0))
    stop = np.arange(1, len(sums))
    start = np.maximum(0, stop - SMOOTHED_STEPS)
    return (sums[stop] - sums[start]) / (stop - start)
