# SPDX-License-Identifier: Apache-2.0
"""A T-RAND folder that the tests damage in their own ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_models import write_target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """T-RAND in one file, called ``tiny``."""
    return write_target(tmp_path / "tiny")


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """T-RAND in two shards, called ``tiny``."""
    return write_target(tmp_path / "tiny", num_shards=2)
