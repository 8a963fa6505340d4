# SPDX-License-Identifier: Apache-2.0
"""Counting of accepted drafts along a text."""

from __future__ import annotations

import numpy as np
import pytest

from hspec_trt.training.evaluate import Acceptance, _walk


def _count(accepted: list[int], *, prompt: int = 4, num_drafts: int = 3) -> Acceptance:
    total = Acceptance(offered=[0] * num_drafts, accepted=[0] * num_drafts)
    _walk(total, np.array(accepted), prompt, prompt + len(accepted))
    return total


def test_no_draft_accepted_is_one_token_a_step() -> None:
    total = _count([0] * 6)
    assert (total.steps, total.tokens, total.mean_length) == (5, 5, 1.0)
    # Near the end of the text fewer drafts can be judged.
    assert total.offered == [5, 4, 3]
    assert total.accepted == [0, 0, 0]


def test_a_step_jumps_over_what_it_accepted() -> None:
    # Anchors 0, 3, 4: two drafts and a bonus, none and a bonus, one draft that ends the text.
    total = _count([2, 9, 9, 0, 1, 9])
    assert (total.steps, total.tokens) == (3, 5)
    assert total.accepted == [2, 1, 0]
    assert total.offered == [3, 2, 1]
    assert total.per_position == [2 / 3, 1 / 2, 0.0]


def test_nothing_counts_beyond_the_text() -> None:
    total = _count([3, 3])
    assert (total.steps, total.tokens, total.accepted) == (1, 1, [1, 0, 0])
    assert _count([3]).steps == 0


def test_the_interval_is_over_conversations() -> None:
    total = Acceptance(offered=[0] * 3, accepted=[0] * 3)
    for accepted in ([0] * 11, [3] * 13):  # ten steps of one token; three of four
        _walk(total, np.array(accepted), 4, 4 + len(accepted))
    assert total.conversations == [(10, 10), (12, 3)]
    assert (total.length.value, total.length.low, total.length.high) == pytest.approx((22 / 13, 1.0, 4.0))
    assert total.length.value == total.mean_length
