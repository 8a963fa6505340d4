# SPDX-License-Identifier: Apache-2.0
"""Counts of figures by size: how long things took, and how drafts fare in short texts and in long ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

SECONDS: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0,
)  # fmt: skip
"""Bounds for anything that takes from a step's time to minutes."""
TOKENS: Final = tuple(float(1 << power) for power in range(18))
TEXT_LENGTHS: Final = (128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)


class Histogram:
    """Figures counted by upper bound, as Prometheus counts them.

    Attributes:
        bounds: rising; a figure belongs to the first bound that is not below it.
        counts: int64 ``[len(bounds) + 1]``, the last one for figures above all bounds.
        total: sum of the figures.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts: NDArray[np.int64] = np.zeros(len(self.bounds) + 1, np.int64)
        self.total = 0.0
        self._edges = np.array(self.bounds)

    def observe(self, value: float) -> None:
        """Count one figure."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_all(self, values: NDArray[np.float64]) -> None:
        """Count figures ``[n]``."""
        if values.size:
            self.counts += np.bincount(self._edges.searchsorted(values), minlength=self.counts.size)
            self.total += float(values.sum())

    def cumulative(self) -> list[int]:
        """How many figures are at most each bound, and how many there are."""
        counts: list[int] = np.cumsum(self.counts).tolist()
        return counts


class DraftsByLength:
    """What drafting did, by the tokens that a text had when a step began.

    Drafters are trained to some length; where a text is longer they may do worse, which a mean over all texts hides.

    Attributes:
        bounds: a text belongs to the first bound that is not below its length; longer ones come last.
        steps, emitted, drafted, accepted: as in `hspec_trt.runtime.stats.DraftStats`, int64 ``[len(bounds) + 1]``.
    """

    def __init__(self, bounds: Sequence[int] = TEXT_LENGTHS) -> None:
        self.bounds = tuple(bounds)
        self._edges = np.array(self.bounds)
        size = len(self.bounds) + 1
        self.steps, self.emitted, self.drafted, self.accepted = (np.zeros(size, np.int64) for _ in range(4))

    def add(
        self,
        lengths: NDArray[np.int64],
        emitted: NDArray[np.int64],
        drafted: NDArray[np.int64],
        accepted: NDArray[np.int64],
    ) -> None:
        """Count the decode steps of some rows, all ``[n]``."""
        places, size = self._edges.searchsorted(lengths), self.steps.size
        self.steps += np.bincount(places, minlength=size)
        for total, figures in ((self.emitted, emitted), (self.drafted, drafted), (self.accepted, accepted)):
            np.add(total, np.bincount(places, figures, size).astype(np.int64), out=total)
