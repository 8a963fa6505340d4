# SPDX-License-Identifier: Apache-2.0
"""Costs of steps never seen follow from those that were; where the formula does not hold, measurements do."""

from __future__ import annotations

import numpy as np
import pytest

from hspec_trt.runtime.step_costs import CostFormula, StepCosts, StepSize

G = 4


def seconds(step: StepSize) -> float:
    return 0.03 + 0.004 * (step.rows + step.drafts) + 0.003 * step.prompt_tokens + 0.01 * (step.drafted > 0)


def test_other_numbers_of_rows_follow_from_those_seen() -> None:
    costs = StepCosts(G, has_drafter=True)
    for turn in range(200):
        for step in (StepSize(2, 2 * G, 2), StepSize(2, 0, 0), StepSize(3, turn % 4, 3, 20), StepSize(0, 0, 0, 40)):
            costs.observe(step, seconds(step))
    for rows in (1, 2, 7, 30):
        expected = [seconds(StepSize(rows, rows * k, rows if k else 0)) for k in range(G + 1)]
        assert costs.curve(rows) == pytest.approx(expected, rel=0.03)


def test_a_jump_at_some_width_is_seen_where_it_was_measured() -> None:
    """A step of 4 drafts a row costs three times what the others let expect, at 4 rows only."""
    costs = StepCosts(G, has_drafter=False)
    for _ in range(100):
        for k in (0, 1, 2, 4):
            costs.observe(StepSize(4, 4 * k, 0), 3.0 if k == 4 else 1.0)
            costs.observe(StepSize(16, 16 * k, 0), 1.0)
    narrow = costs.curve(4)
    assert narrow[[0, 1, 2, 4]] == pytest.approx([1.0, 1.0, 1.0, 3.0], rel=0.1)
    assert narrow[2] < narrow[3] < narrow[4]
    assert costs.curve(16)[4] == pytest.approx(1.0, rel=0.1)


def test_full_steps_do_not_make_drafts_look_free() -> None:
    """Under a full token budget every step costs the same; a token still counts its share."""
    costs = StepCosts(G, has_drafter=True)
    for drafts in (0, 8, 32, 16):
        costs.observe(StepSize(8, drafts, 8, 248 - drafts), 1.0)
    curve = costs.curve(8)
    assert curve[G] > 3 * curve[0]


def test_no_cost_is_below_zero_or_without_end() -> None:
    costs, rng = StepCosts(G, has_drafter=True), np.random.default_rng(0)
    for _ in range(2000):
        rows = int(rng.integers(0, 9))
        step = StepSize(
            rows, int(rng.integers(0, G * rows + 1)), int(rng.integers(0, rows + 1)), int(rng.integers(0, 9))
        )
        costs.observe(step, float(rng.choice([0.0, 1e-6, 0.1, 1e3])))
        curve = costs.curve(int(rng.integers(1, 9)))
        assert (curve > 0).all()
        assert np.isfinite(curve).all()


def test_nothing_is_expected_before_the_first_step() -> None:
    assert CostFormula().seconds(StepSize(4, 4, 4).features()) == 0.0


def test_many_steps_at_once_cost_the_same_bits() -> None:
    """The C++ runtime goes through them one by one and must choose the same k."""
    formula, rng = CostFormula(), np.random.default_rng(1)
    for _ in range(40):
        rows = int(rng.integers(1, 9))
        formula.observe(StepSize(rows, int(rng.integers(0, 30)), rows, int(rng.integers(0, 9))), float(rng.random()))
    steps = [StepSize(7, drafts, 7 if drafts else 0, 3) for drafts in range(0, 35, 7)]
    together = formula.seconds_of_all([np.array(column) for column in zip(*(s.features() for s in steps), strict=True)])
    assert together.tolist() == [formula.seconds(step.features()) for step in steps]
