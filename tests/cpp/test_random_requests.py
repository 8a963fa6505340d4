# SPDX-License-Identifier: Apache-2.0
"""Ten thousand random requests on the C++ runtime, as released and under the address sanitizer; traces under it too."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.random_requests import check_random_requests
from tests.support.runtime_build import ROOT, runtime_build


def test_random_requests() -> None:
    check_random_requests("release")


@pytest.mark.slow
def test_random_requests_under_the_address_sanitizer() -> None:
    check_random_requests("address")


@pytest.mark.slow
def test_traces_under_the_address_sanitizer() -> None:
    program = runtime_build("address", "replay_traces") / "replay_traces"
    traces = sorted((ROOT / "tests" / "golden" / "traces").glob("*.safetensors"))
    result = subprocess.run([program, *traces], capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    assert result.stdout.splitlines() == [f"same {path}" for path in traces]
