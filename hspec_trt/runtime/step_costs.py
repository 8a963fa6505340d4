# SPDX-License-Identifier: Apache-2.0
"""What a step costs, learned while serving: a formula that holds for any number of rows, and corrections to it.

The formula carries what was measured at some numbers of rows and drafts over to all others; where a machine does not
follow it, the corrections of the numbers in question say by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

NUM_FEATURES: Final = 5
MEMORY: Final = 0.998
"""A step counts this much less with every step after it: about the last 500 count."""
FIT_GAP: Final = 8
"""Steps between two fits."""
TIE_BREAKS: Final = (1e-8, 1e-6, 1e-6, 1e-5, 1e-5)
"""Shrinks the cost of each feature, by so little that it decides only what the steps leave open. Tokens come first:
while all steps are full, a token shall count as dear, or drafts would look free."""
LEAST: Final = 1e-30
"""A feature with less weight has not been seen, or so long ago that it is worth a new look."""
WEIGHT: Final = 0.2
"""Weight of a new step in a mean, at least."""
OUTLIER: Final = 3.0
"""A step counts at most as this many times what was expected: a hiccup of the machine must not switch drafting off."""

SHORTEST: Final = 1e-9
"""Seconds; no step counts as less."""


@dataclass(frozen=True)
class StepSize:
    """What the cost of a step depends on.

    Attributes:
        rows: decode rows, which carry `drafts` drafts together; `drafted` rows are drafted for.
        prompt_tokens: tokens of prompts that it runs besides.
    """

    rows: int
    drafts: int
    drafted: int
    prompt_tokens: int = 0

    def features(self) -> tuple[float, ...]:
        """What the formula multiplies: tokens, prompt tokens, rows of the drafter, its pass, and the step."""
        tokens = float(self.rows + self.drafts)
        return tokens, float(self.prompt_tokens), float(self.drafted), float(self.drafted > 0), 1.0


class CostFormula:
    """Seconds of a step as a sum of costs, none below 0, with the smallest relative errors over the last steps."""

    def __init__(self) -> None:
        self._costs, self._targets = [0.0] * NUM_FEATURES, [0.0] * NUM_FEATURES
        self._products = [[0.0] * NUM_FEATURES for _ in range(NUM_FEATURES)]
        self._steps = 0

    def seconds(self, features: Sequence[float]) -> float:
        """The expected cost; 0 before the first step was observed."""
        total = 0.0
        for cost, feature in zip(self._costs, features, strict=True):
            total += cost * feature
        return total

    def seconds_of_all(self, features: Sequence[Float64 | float]) -> Float64:
        """As `seconds` for many steps at once, to the same bits: ``[n]``, of each feature of all of them."""
        total: Float64 = self._costs[0] * np.asarray(features[0])
        for cost, feature in zip(self._costs[1:], features[1:], strict=True):
            total += cost * feature
        return total

    def observe(self, step: StepSize, seconds: float) -> None:
        """Note a step. All of the first ones lead to a new fit, later every eighth."""
        scaled = [feature / seconds for feature in step.features()]
        for i, left in enumerate(scaled):
            self._targets[i] = MEMORY * self._targets[i] + left
            row = self._products[i]
            for j, right in enumerate(scaled):
                row[j] = MEMORY * row[j] + left * right
        self._steps += 1
        if self._steps <= 2 * FIT_GAP or self._steps % FIT_GAP == 0:
            self._fit()

    def _fit(self) -> None:
        """Least squares; of costs below 0 the lowest is left out until none is."""
        self._costs = [0.0] * NUM_FEATURES
        used = [i for i in range(NUM_FEATURES) if self._products[i][i] > LEAST]
        while used:
            matrix = [[self._products[i][j] * (1.0 + TIE_BREAKS[i] * (i == j)) for j in used] for i in used]
            found = _solve(matrix, [self._targets[i] for i in used])
            lowest = min(found)
            if lowest >= 0.0:
                for i, cost in zip(used, found, strict=True):
                    self._costs[i] = cost
                return
            del used[found.index(lowest)]


def _solve(matrix: list[list[float]], target: list[float]) -> list[float]:
    """``x`` with ``matrix x = target``, for a positive definite matrix, both of which are used up."""
    size = len(target)
    for i in range(size):
        for row in range(i + 1, size):
            factor = matrix[row][i] / matrix[i][i]
            for j in range(i + 1, size):
                matrix[row][j] -= factor * matrix[i][j]
            target[row] -= factor * target[i]
    for i in reversed(range(size)):
        for j in range(i + 1, size):
            target[i] -= matrix[i][j] * target[j]
        target[i] /= matrix[i][i]
    return target


class Measured:
    """Mean cost of steps of one kind, and their mean features; old ones fade out."""

    def __init__(self) -> None:
        self._times = 0
        self._seconds = 0.0
        self._features = [0.0] * NUM_FEATURES

    def add(self, step: StepSize, seconds: float) -> None:
        """Note a step."""
        self._times += 1
        weight = max(WEIGHT, 1.0 / self._times)
        self._seconds += weight * (seconds - self._seconds)
        for i, feature in enumerate(step.features()):
            self._features[i] += weight * (feature - self._features[i])

    def correction(self, formula: CostFormula) -> float:
        """What the formula's result must be multiplied with; the formula itself counts as one measurement."""
        expected = formula.seconds(self._features)
        return (self._times * self._seconds / expected + 1.0) / (self._times + 1.0) if expected > 0.0 else 1.0


class StepCosts:
    """Cost of decode steps by the drafts that each row carries.

    Args:
        num_drafts: G.
        has_drafter: whether steps that carry drafts also draft.
    """

    def __init__(self, num_drafts: int, has_drafter: bool) -> None:
        self._num_drafts, self._has_drafter = num_drafts, has_drafter
        self._formula = CostFormula()
        self._tokens: Float64 = np.arange(1.0, num_drafts + 2.0)  # that a row runs, for k = 0..G
        self._passes: Float64 = (has_drafter & (self._tokens > 1.0)).astype(np.float64)
        self._measured: dict[tuple[int, int], Measured] = {}  # by class of rows and k

    def observe(self, step: StepSize, seconds: float) -> None:
        """Note a step that ran."""
        expected = self._formula.seconds(step.features())
        seconds = max(min(seconds, OUTLIER * expected) if expected > 0.0 else seconds, SHORTEST)
        self._formula.observe(step, seconds)
        if not step.rows or step.prompt_tokens:
            return
        k = min(round(step.drafts / step.rows), self._num_drafts)
        if step.drafted == self._step(step.rows, k).drafted:
            self._measured.setdefault((_row_class(step.rows), k), Measured()).add(step, seconds)

    def curve(self, rows: int) -> Float64:
        """Seconds of a step of this many decode rows with k = 0..G drafts each, ``[G + 1]``.

        Corrections between those known lie on straight lines.
        """
        row_class = _row_class(rows)
        expected = self._formula.seconds_of_all((rows * self._tokens, 0.0, rows * self._passes, self._passes, 1.0))
        known = [k for k in range(self._num_drafts + 1) if (row_class, k) in self._measured]
        if known:
            corrections = [self._measured[row_class, k].correction(self._formula) for k in known]
            expected *= np.interp(self._tokens - 1.0, known, corrections)
        made: Float64 = np.maximum(expected, SHORTEST)
        return made

    def _step(self, rows: int, k: int) -> StepSize:
        return StepSize(rows, rows * k, rows if self._has_drafter and k else 0)


def _row_class(rows: int) -> int:
    """Numbers of rows that are measured together: 1, 2, 3-4, 5-8, 9-16, ..."""
    return (rows - 1).bit_length()
