# SPDX-License-Identifier: Apache-2.0
"""How many drafts a step should carry, from what steps cost here and how many drafts are accepted.

For k drafts a row, a step emits ``E(k) = 1 + sum_j P(the first j drafts are accepted)`` tokens a row and takes
``C(k)`` seconds; the policy takes the k with the largest ``E(k) / C(k)``, k = 0 without a drafter pass included. Both
are measured while serving: costs per number of rows and k, acceptance per position, each with old figures fading out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

COST_WEIGHT: Final = 0.2
"""Weight of a new step time in its running mean."""
OUTLIER: Final = 3.0
"""A step time counts at most this many times the mean: one hiccup of the machine must not switch drafting off."""
FIRST_TIMES: Final = 2
"""The smallest of the first step times counts: the very first often pays for memory and caches."""
MEMORY: Final = 0.98
"""Acceptance counts fade by this factor a step: about the last 50 steps count."""
PRIOR_DRAFTS: Final = 2.0
PRIOR_ACCEPTANCE: Final = 0.6
PROBE_SHARE: Final = 0.01
"""Share of the time that may go into looking whether another k has become better."""
MAX_PROBE_GAP: Final = 4096


@dataclass(frozen=True)
class DraftChoice:
    """What rows with ``drafts="auto"`` do.

    Attributes:
        verify: drafts of the last step that a row carries now, at most.
        draft: whether this step drafts for the next one.
    """

    verify: int
    draft: bool


class _Costs:
    """Step seconds for one number of rows (of a class), by drafts a row; NaN where never seen.

    Two curves, because a step that drafts costs a drafter pass more than one that does not.
    """

    def __init__(self, num_drafts: int) -> None:
        self.seconds = np.full((2, num_drafts + 1), np.nan)
        self.times = np.zeros((2, num_drafts + 1), np.int64)

    def add(self, drafted: bool, k: int, seconds: float) -> None:
        at = (int(drafted), k)
        old = float(self.seconds[at])
        self.times[at] += 1
        if self.times[at] <= FIRST_TIMES:
            self.seconds[at] = seconds if np.isnan(old) else min(old, seconds)
        else:
            self.seconds[at] += COST_WEIGHT * (min(seconds, OUTLIER * old) - old)

    def curve(self, drafted: bool) -> Float64 | None:
        """The cost of every k by straight lines between those seen; None where none was."""
        seen = np.flatnonzero(~np.isnan(self.seconds[int(drafted)]))
        if not seen.size:
            return None
        curve: Float64 = np.interp(np.arange(self.seconds.shape[1]), seen, self.seconds[int(drafted), seen])
        return curve


class DraftPolicy:
    """Chooses k.

    Args:
        num_drafts: G.
        has_drafter: without one only the width of look-up drafts is chosen.
    """

    def __init__(self, num_drafts: int, has_drafter: bool) -> None:
        self.num_drafts, self._has_drafter = num_drafts, has_drafter
        self._costs: dict[int, _Costs] = {}
        self._offered: Float64 = np.zeros(num_drafts)
        self._accepted: Float64 = np.zeros(num_drafts)
        self._since_probe = 0
        self._gap = 32
        self._probe_left = 0
        self._last = DraftChoice(num_drafts, has_drafter)

    def acceptance(self) -> Float64:
        """``P(the first j drafts are accepted)`` for j = 1..G, from running conditional shares."""
        shares = np.zeros(self.num_drafts)
        share, all_before, offered_before = PRIOR_ACCEPTANCE, 1.0, 0.0
        for j, (offered, accepted) in enumerate(zip(self._offered.tolist(), self._accepted.tolist(), strict=True)):
            # Of the drafts offered here, those after an accepted one; a place with few leans on the one before it.
            reached = offered if j == 0 else min(offered, offered_before)
            share = (accepted + PRIOR_DRAFTS * share) / (reached + PRIOR_DRAFTS)
            all_before, offered_before = all_before * share, accepted
            shares[j] = all_before
        return shares

    def choose(self, rows: int) -> DraftChoice:
        """The choice for a step of `rows` decode rows."""
        if not self.num_drafts or not rows:
            return DraftChoice(self.num_drafts, self._has_drafter)
        costs = self._costs.setdefault(_row_class(rows), _Costs(self.num_drafts))
        missing = self._missing(costs)
        if missing is not None:
            return missing
        best = self._best(costs)
        self._since_probe += 1
        if self._probe_left or self._since_probe >= self._gap:
            best = self._probe(costs, best)
        return DraftChoice(best, self._has_drafter and best > 0)

    def observe_cost(self, rows: int, drafts: int, drafted: bool, seconds: float) -> None:
        """Note a step of decode rows only.

        Args:
            rows: decode rows; `drafts` were verified over all of them.
            drafted: whether all rows were drafted for.
        """
        k = min(round(drafts / rows), self.num_drafts)
        self._costs.setdefault(_row_class(rows), _Costs(self.num_drafts)).add(drafted, k, seconds / rows)

    def observe_acceptance(self, offered: NDArray[np.int64], accepted: NDArray[np.int64]) -> None:
        """Note the drafts of a step per position: int64 ``[G]`` each."""
        self._offered = MEMORY * self._offered + offered
        self._accepted = MEMORY * self._accepted + accepted

    def rates(self, rows: int) -> Float64:
        """Expected tokens a second and row for k = 0..G at this number of rows; NaN where not known yet."""
        costs = self._costs.get(_row_class(rows))
        return self._rates(costs) if costs else np.full(self.num_drafts + 1, np.nan)

    def _missing(self, costs: _Costs) -> DraftChoice | None:
        """What must be measured first: full width, then one draft, then none."""
        drafted, plain = costs.seconds[int(self._has_drafter)], costs.seconds[0]
        if np.isnan(drafted[1:]).all():
            return DraftChoice(self.num_drafts, self._has_drafter)
        if np.count_nonzero(~np.isnan(drafted[1:])) < min(2, self.num_drafts):
            return DraftChoice(1 if np.isnan(drafted[1]) else self.num_drafts, self._has_drafter)
        return DraftChoice(0, False) if np.isnan(plain[0]) else None

    def _rates(self, costs: _Costs) -> Float64:
        emitted = np.concatenate(([1.0], 1.0 + np.cumsum(self.acceptance())))
        curve, plain = costs.curve(self._has_drafter), costs.curve(False)
        seconds = np.full(self.num_drafts + 1, np.nan)
        if curve is not None:
            seconds[1:] = curve[1:]
        if plain is not None:
            seconds[0] = plain[0]
        rates: Float64 = emitted / seconds
        return rates

    def _best(self, costs: _Costs) -> int:
        return int(np.nanargmax(self._rates(costs)))

    def _probe(self, costs: _Costs, best: int) -> int:
        """Two steps of another k: full width where drafting is off or narrow, none where it is wide.

        The gap to the next probe grows with what a probe costs, so that all of them stay within `PROBE_SHARE`.
        """
        other = self.num_drafts if best < self.num_drafts else 0
        if not self._probe_left:
            rates = self._rates(costs)
            loss = max(1.0 - float(rates[other] / rates[best]), 0.05)
            self._gap = int(min(max(2.0 * loss / PROBE_SHARE, 32.0), MAX_PROBE_GAP))
            self._since_probe, self._probe_left = 0, 2
        self._probe_left -= 1
        return other


def _row_class(rows: int) -> int:
    """Numbers of rows that share one table of costs: 1, 2, 3-4, 5-8, 9-16, ..."""
    return (rows - 1).bit_length()
