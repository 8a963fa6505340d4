# SPDX-License-Identifier: Apache-2.0
"""What is sampled follows the target's distribution, as transformers computes it, with drafts and without."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.support.distribution import TARGET, check_distribution, check_draws, draw_pairs
from tests.support.tiny_models import t_rand, write_target

from .conftest import CoreFor, target_of, with_drafters


def test_small_vocabulary(core_for: CoreFor, tmp_path: Path) -> None:
    """T-RAND, 61 tokens."""
    write_target(tmp_path / "t", *t_rand())
    check_draws("t_rand", tmp_path / "t", 4000, 1.0, "off", core_for)


@pytest.mark.parametrize(
    ("name", "drafts", "temperature", "count"),
    with_drafters([("on", 1.0, 1000), *product(["on", "off"], [0.8, 1.3], [4000])], short=[("on", 1.0, 1000)]),
)
def test_with_a_drafter(name: str, drafts: str, temperature: float, count: int, core_for: CoreFor) -> None:
    core = check_draws(name, target_of(name), count, temperature, drafts, core_for)
    stats_ = core.stats.drafts
    if drafts == "on":
        assert stats_.accepted[0] > count // 100, "too few accepted drafts for the test to say anything about them"
    else:
        assert stats_.drafted == 0


def test_the_test_finds_a_wrong_distribution(core_for: CoreFor) -> None:
    """At another temperature than was asked for, the same test fails."""
    core = core_for("hspec_qwen3", max_rows=64, num_pages=200)
    pairs = draw_pairs(core, 3000, 1.0, "on")
    with pytest.raises(AssertionError):
        check_distribution(pairs, TARGET, 256, 1.15)
