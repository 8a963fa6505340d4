# SPDX-License-Identifier: Apache-2.0
"""Figures against counts that can be done by hand."""

from __future__ import annotations

import pytest

from hspec_trt.intervals import Estimate
from hspec_trt.memory import KvCost
from hspec_trt.suite.figures import DrafterFigures, acceptance_by_position, accepted_length, step_cost
from hspec_trt.suite.records import Record, Timing
from hspec_trt.suite.report import to_markdown
from hspec_trt.suite.run import LOOKUP, OFF


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
    found = acceptance_by_position(rows)
    assert [share.value for share in found] == pytest.approx([3 / 5, 1 / 4, 0.0])
    assert (found[0].low, found[0].high) == pytest.approx((0.0, 3 / 4)), "one prompt or the other, or both"


def test_a_position_that_nothing_was_verified_at_has_no_share() -> None:
    assert len(acceptance_by_position([record("a", steps=2, emitted=2, offered=(2, 0), accepted=(0, 0))])) == 1
    assert acceptance_by_position([record("a", steps=2, emitted=2)]) == []


def rounds(inside: tuple[float, ...], rest: float) -> tuple[tuple[float, float], ...]:
    return tuple((seconds, rest) for seconds in inside)


TIMING = Timing(
    rounds((0.10, 0.20, 0.10), 0.01), rounds((0.12, 0.30, 0.12), 0.03), rounds((0.15, 0.36, 0.15), 0.05), load=0.1
)


def test_a_step_is_made_of_target_drafting_and_rest() -> None:
    rows = [record("a", steps=10, emitted=20), record("b", steps=10, emitted=20)]
    cost = step_cost("d", rows, TIMING)
    parts = [part.value for part in (cost.target, cost.drafting, cost.rest)]
    assert parts == pytest.approx([0.12, 0.03, 0.05])
    assert cost.tokens_per_second.value == pytest.approx(2 / 0.20)
    assert cost.speedup.value == pytest.approx(2 * 0.11 / 0.20)
    assert (cost.target.low, cost.target.high) == pytest.approx((0.12, 0.30))
    assert (cost.rest.low, cost.rest.high) == pytest.approx((0.05, 0.05))


def test_speed_varies_with_prompts_and_with_rounds() -> None:
    alike = [record(str(number), steps=10, emitted=20) for number in range(4)]
    unlike = [record(str(number), steps=10, emitted=10 + 10 * (number % 3)) for number in range(4)]
    steady = Timing(*(rounds((0.1,) * 3, 0.0) for _ in range(3)), load=0.1)
    for rows, timing, varies in ((alike, steady, False), (unlike, steady, True), (alike, TIMING, True)):
        found = step_cost("d", rows, timing).tokens_per_second
        assert (found.high - found.low > 0.1) == varies


@pytest.mark.parametrize(
    ("name", "target", "rest", "speedup"), [(OFF, 0.10, 0.01, 2.0), (LOOKUP, 0.12, 0.03, 2 * 0.11 / 0.15)]
)
def test_who_does_not_draft_pays_for_no_pass(name: str, target: float, rest: float, speedup: float) -> None:
    cost = step_cost(name, [record("a", steps=10, emitted=20)], TIMING)
    found = (cost.target.value, cost.drafting.value, cost.rest.value, cost.speedup.value)
    assert found == pytest.approx((target, 0.0, rest, speedup))


def test_a_draw_without_the_position_says_nothing_of_it() -> None:
    rows = [record(str(number), steps=2, emitted=2, offered=(2,), accepted=(0,)) for number in range(47)]
    rows.append(record("last", steps=2, emitted=6, offered=(2, 2), accepted=(2, 2)))
    second = acceptance_by_position(rows)[1]
    assert (second.low, second.value, second.high) == (1.0, 1.0, 1.0)


def test_rows_of_fewer_positions_keep_their_columns() -> None:
    rows = [figures_of("few", positions=1), figures_of("many", positions=3)]
    table = next(part for part in to_markdown(rows).split("\n\n") if "prompts |" in part)
    assert {line.count("|") for line in table.splitlines()} == {7}
    assert [line.rsplit("|", 3)[1:3] for line in table.splitlines()[2:]] == [[" 9 ", " 2 "]] * 2


def figures_of(name: str, *, positions: int) -> DrafterFigures:
    share = Estimate(0.5, 0.4, 0.6)
    return DrafterFigures(name, {"all": share}, [share] * positions, 9, 2, None, 0, KvCost(1, 0, 0, 0))
