# SPDX-License-Identifier: Apache-2.0
"""Counters of the step loop: histograms of times, and drafting by the length of the text."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime import record, scheduler
from hspec_trt.runtime.histogram import DraftsByLength, Histogram
from tests.unit.runtime.harness import check_empty, drain, make_core, submit


def test_a_figure_belongs_to_the_first_bound_that_is_not_below_it() -> None:
    one, many = Histogram((1.0, 2.0, 5.0)), Histogram((1.0, 2.0, 5.0))
    figures = [0.0, 1.0, 1.5, 2.0, 4.9, 5.0, 5.1, 1e9]
    for figure in figures:
        one.observe(figure)
    many.observe_all(np.array(figures))
    many.observe_all(np.zeros(0))
    assert one.counts.tolist() == many.counts.tolist() == [2, 2, 2, 2]
    assert one.cumulative() == [2, 4, 6, 8]
    assert one.total == many.total == pytest.approx(sum(figures))


def test_drafts_by_length_put_each_row_where_it_belongs() -> None:
    by_length = DraftsByLength((4, 8))
    by_length.add(np.array([3, 4, 5, 9, 9]), np.array([1, 2, 3, 4, 5]), np.array([7] * 5), np.array([0, 1, 2, 3, 4]))
    assert by_length.steps.tolist() == [2, 1, 2]
    assert by_length.emitted.tolist() == [3, 3, 9]
    assert by_length.drafted.tolist() == [14, 7, 14]
    assert by_length.accepted.tolist() == [1, 2, 7]


def test_buckets_of_lengths_sum_to_the_totals() -> None:
    """Case D7: what is reported by length of the text is what is reported in all, preempted answers included."""
    core = make_core(accept=lambda seed, position: position % 5, num_pages=32)
    core.stats.by_length = by_length = DraftsByLength((16, 32, 64, 96))
    for seed in range(12):
        prompt = [1 + (seed * 7 + i) % 50 for i in range(4 + 7 * seed)]
        submit(core, prompt, SamplingParams(temperature=1.0, seed=seed, max_tokens=40, drafts="on"))
    drain(core)
    check_empty(core)
    drafts = core.stats.drafts
    assert core.stats.preemptions > 0
    assert int(by_length.steps.sum()) == drafts.steps
    assert int(by_length.emitted.sum()) == drafts.emitted
    assert int(by_length.drafted.sum()) == drafts.drafted > 0
    assert int(by_length.accepted.sum()) == drafts.num_accepted > 0
    assert (by_length.steps > 0).all()


def test_times_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that ticks once a reading: gaps are the same for a streaming answer and for one that is not."""
    core = make_core()
    clock = itertools.count(1.0, 0.25)

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return next(clock)

    for module in (record, scheduler):
        monkeypatch.setattr(module, "time", Clock)
    answers = [submit(core, [3, 5], SamplingParams(temperature=0.0, max_tokens=6, drafts="off")) for _ in range(2)]
    drain(core)
    stats = core.stats
    assert stats.first_token.counts.sum() == 2
    assert stats.inter_token.counts.sum() == 2 * 5  # six steps with tokens have five gaps between them
    assert stats.inter_token.total > 0
    assert stats.step_tokens.counts.sum() == stats.steps
    assert stats.step_tokens.total == 2 * 2 + 2 * 5
    assert [len(answer.ids) for answer in answers] == [6, 6]


def test_a_pause_by_preemption_is_one_long_gap() -> None:
    core = make_core(num_pages=32)
    for seed in range(12):
        params = SamplingParams(temperature=1.0, seed=seed, max_tokens=40, drafts="off")
        submit(core, [1 + seed] * (4 + 7 * seed), params)
    drain(core)
    assert core.stats.preemptions > 0
    assert core.stats.inter_token.counts.sum() == 12 * 39
