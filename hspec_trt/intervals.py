# SPDX-License-Identifier: Apache-2.0
"""Means of a ratio with an interval: accepted lengths over prompts that differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

RESAMPLES: Final = 2000
LEVEL: Final = 0.95


@dataclass(frozen=True)
class Estimate:
    """A figure and its interval: 95 %, by drawing prompts anew."""

    value: float
    low: float
    high: float


def ratio_of_sums(above: Sequence[int], below: Sequence[int]) -> Estimate:
    """``sum(above) / sum(below)``, with the bootstrap's percentile interval; NaN where nothing is below.

    Args:
        above, below: counts of one prompt each, in the same order.
    """
    if not sum(below):
        return Estimate(float("nan"), float("nan"), float("nan"))
    counts = np.array([above, below], np.float64)
    drawn = np.random.default_rng(0).integers(0, len(above), size=(RESAMPLES, len(above)))
    sums = counts[:, drawn].sum(2)
    low, high = np.quantile(sums[0] / np.maximum(sums[1], 1.0), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(sum(above) / sum(below)), float(low), float(high))
