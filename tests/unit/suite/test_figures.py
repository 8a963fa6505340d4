# SPDX-License-Identifier: Apache-2.0
"""Figures against counts that can be done by hand."""

from __future__ import annotations

import pytest

from hspec_trt.suite.figures import acceptance_by_position, accepted_length
from hspec_trt.suite.records import Record


def record(
    key: str, *, steps: int, emitted: int, offered: tuple[int, ...] = (), accepted: tuple[int, ...] = ()
) -> Record:
    return Record("d", "math", key, 5, emitted + 1, "length", steps, emitted, offered, accepted, 0.5)


def test_accepted_length_is_tokens_over_steps_and_not_a_mean_of_means() -> None:
    found = accepted_length([record("a", steps=10, emitted=10), record("b", steps=2, emitted=8)])
    assert found.value == pytest.approx(18 / 12)
    assert (found.low, found.high) == pytest.approx((1.0, 4.0))


def test_equal_prompts_leave_no_doubt() -> None:
    found = accepted_length([record(str(number), steps=4, emitted=6) for number in range(5)])
    assert (found.low, found.value, found.high) == pytest.approx((1.5, 1.5, 1.5))


def test_the_interval_narrows_with_more_prompts() -> None:
    rows = [record(str(number), steps=10, emitted=10 + number % 7) for number in range(70)]
    few, many = accepted_length(rows[:7]), accepted_length(rows)
    assert few.high - few.low > 2 * (many.high - many.low) > 0


def test_acceptance_by_position_adds_up_answers_of_different_length() -> None:
    rows = [
        record("a", steps=4, emitted=8, offered=(4, 4, 3), accepted=(3, 1, 0)),
        record("b", steps=1, emitted=1, offered=(1,), accepted=(0,)),
    ]
    assert acceptance_by_position(rows) == pytest.approx([3 / 5, 1 / 4, 0.0])
