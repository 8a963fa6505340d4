# SPDX-License-Identifier: Apache-2.0
"""Figures with intervals, by drawing what was observed anew (the bootstrap's percentile interval)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

RESAMPLES: Final = 2000
LEVEL: Final = 0.95

Samples = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float


def bootstrap(figure: Callable[..., Samples], *groups: Samples) -> Estimate:
    """A figure of one or more groups of observations; each group is drawn anew on its own, whole observations.

    Args:
        figure: takes the groups as ``[K, observations, ...]`` and gives ``[K]``, one figure per draw; draws that
            have none, NaN, are left out.
        groups: ``[observations, ...]`` each.
    """
    rng = np.random.default_rng(0)
    drawn = [group[rng.integers(0, len(group), size=(RESAMPLES, len(group)))] for group in groups]
    low, high = np.nanquantile(figure(*drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(figure(*(group[None] for group in groups))[0]), float(low), float(high))


def ratio_of_sums(above: Sequence[int], below: Sequence[int]) -> Estimate:
    """``sum(above) / sum(below)``; NaN where nothing is below.

    Args:
        above, below: counts of one prompt each, in the same order.
    """
    if not sum(below):
        return Estimate(float("nan"), float("nan"), float("nan"))
    return bootstrap(total_ratio, np.stack([above, below], 1).astype(np.float64))


def total_ratio(counts: Samples) -> Samples:
    """Sum of the first column over that of the second: ``[K, observations, 2]`` to ``[K]``; NaN over 0."""
    above, below = np.moveaxis(counts.sum(1), 1, 0)
    ratio: Samples = np.divide(above, below, out=np.full_like(below, np.nan), where=below > 0)
    return ratio
