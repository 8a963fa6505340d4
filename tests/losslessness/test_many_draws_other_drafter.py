# SPDX-License-Identifier: Apache-2.0
"""Case C5 at its full size, with another target's drafter. A file of its own, so that the two run side by side."""

from __future__ import annotations

import pytest

from tests.support.distribution import TARGET, check_draws

from .conftest import CoreFor


@pytest.mark.long
def test_two_hundred_thousand_draws(core_for: CoreFor) -> None:
    check_draws("other_drafter", TARGET, 200_000, 1.0, "on", core_for)
