# SPDX-License-Identifier: Apache-2.0
"""Ten thousand random requests under the thread sanitizer; a file of its own, as each of these takes a minute."""

from __future__ import annotations

import pytest

from tests.support.random_requests import check_random_requests


@pytest.mark.slow
def test_random_requests_under_the_thread_sanitizer() -> None:
    check_random_requests("thread")
