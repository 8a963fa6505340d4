# SPDX-License-Identifier: Apache-2.0
"""What the launchers launched, of all cases, from one process with the recording driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.launchers.shapes import all_variants
from tests.support.plugin_build import library_with
from tests.support.recording_driver_build import recording_driver, told_kernel


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Everything that the process told, one entry a case."""
    library = library_with([told_kernel(variant) for variant in all_variants()], tmp_path_factory.mktemp("library"))
    driver = recording_driver()
    env = dict(os.environ, LD_LIBRARY_PATH=str(driver.parent), PLUGIN_LIBRARY=str(library))
    command = [sys.executable, "-m", "tests.plugins.launchers.child", str(library), str(driver)]
    root = Path(__file__).resolve().parents[3]
    result = subprocess.run(command, env=env, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="session")
def recorded(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cases: what should be launched, and what was by either way."""
    return [entry for entry in told if entry["kind"] == "case"]
