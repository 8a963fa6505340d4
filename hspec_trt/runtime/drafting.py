# SPDX-License-Identifier: Apache-2.0
"""How many drafts a step should carry, from what steps cost here and how many drafts are accepted.

For k drafts a row, a step emits ``E(k) = 1 + sum_j P(the first j drafts are accepted)`` tokens a row and takes
``C(k)`` seconds; the policy takes the k with the largest ``E(k) / C(k)``, k = 0 without a drafter pass included. Both
are measured while serving: acceptance per position here, costs in `hspec_trt.runtime.step_costs`, each with old figures
fading out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hspec_trt.runtime.step_costs import StepCosts, StepSize

Float64 = NDArray[np.float64]

MEMORY: Final = 0.98
"""Acceptance counts fade by this factor a step: about the last 50 steps count."""
PRIOR_DRAFTS: Final = 2.0
PRIOR_ACCEPTANCE: Final = 0.6
FIRST_STEPS: Final = 2
"""Steps with drafts, and without, that must be measured before anything is compared."""
PROBE_SHARE: Final = 0.02
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


class DraftPolicy:
    """Chooses k.

    Args:
        num_drafts: G.
        has_drafter: without one only the width of look-up drafts is chosen.
    """

    def __init__(self, num_drafts: int, has_drafter: bool) -> None:
        self.num_drafts, self._has_drafter = num_drafts, has_drafter
        self._costs = StepCosts(num_drafts, has_drafter)
        self._steps_with, self._steps_without = 0, 0  # drafts
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
        if self._steps_with < FIRST_STEPS:
            return DraftChoice(self.num_drafts, self._has_drafter)
        if self._steps_without < FIRST_STEPS:
            return DraftChoice(0, False)
        emitted = self._emitted()
        rates = emitted / self._costs.curve(rows)
        best = int(rates.argmax())
        self._since_probe += 1
        if self._probe_left or self._since_probe >= self._gap:
            best = self._probe(emitted, rates, best)
        return DraftChoice(best, self._has_drafter and best > 0)

    def observe_step(self, step: StepSize, seconds: float) -> None:
        """Note what a step cost."""
        self._steps_with += step.drafts > 0
        self._steps_without += step.rows > 0 and not (step.drafts or step.drafted)
        self._costs.observe(step, seconds)

    def observe_acceptance(self, offered: NDArray[np.int64], accepted: NDArray[np.int64]) -> None:
        """Note the drafts of a step per position: int64 ``[G]`` each."""
        self._offered = MEMORY * self._offered + offered
        self._accepted = MEMORY * self._accepted + accepted

    def _emitted(self) -> Float64:
        """Expected tokens of a row's step for k = 0..G."""
        emitted: Float64 = np.concatenate(([1.0], 1.0 + np.cumsum(self.acceptance())))
        return emitted

    def _probe(self, emitted: Float64, rates: Float64, best: int) -> int:
        """Two steps of another k: full width where drafting is off or narrow, none where it is wide.

        The gap to the next probe grows with what a probe costs, so that all of them stay within `PROBE_SHARE`.
        """
        other = self.num_drafts if best < self.num_drafts else 0
        if not self._probe_left:
            lost = float(emitted[other] * (rates[best] / rates[other] - 1.0) / emitted[best])  # steps of the best k
            self._gap = int(min(max(2.0 * lost / PROBE_SHARE, 32.0), MAX_PROBE_GAP))
            self._since_probe, self._probe_left = 0, 2
        self._probe_left -= 1
        return other
