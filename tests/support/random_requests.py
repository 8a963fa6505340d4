# SPDX-License-Identifier: Apache-2.0
"""The C++ program that sends random requests, with cancels from other threads, and what its report must say."""

from __future__ import annotations

import re
import subprocess

from tests.support.runtime_build import runtime_build

REQUESTS = 10_000


def _run(preset: str) -> str:
    program = runtime_build(preset, "random_requests") / "random_requests"
    result = subprocess.run([program, str(REQUESTS)], capture_output=True, text=True, check=False, timeout=900)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    return result.stdout


def check_random_requests(preset: str) -> None:
    """Everything ended, and everything that the traffic is for happened."""
    report = _run(preset)
    counts = {reason: int(count) for reason, count in re.findall(r"^  (\w+): (\d+)$", report, re.MULTILINE)}
    assert sum(counts.values()) == REQUESTS
    assert set(counts) == {"eos", "stop_token", "length", "cancelled", "error"}
    found = re.search(r"(\d+) ahead, (\d+) preemptions, (\d+) tokens from", report)
    assert found
    ahead, preemptions, cached = map(int, found.groups())
    assert ahead > 1000 and preemptions > 100 and cached > 1000 and counts["cancelled"] > 100
