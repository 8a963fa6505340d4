# SPDX-License-Identifier: Apache-2.0
"""The table of drafter codes is the list of what the checkpoint part raises or warns of."""

from __future__ import annotations

import re
from pathlib import Path

import hspec_trt.checkpoint
from hspec_trt.checkpoint.formats.codes import CODES


def test_table_and_sources_agree() -> None:
    package = Path(hspec_trt.checkpoint.__file__).parent
    sources = [path.read_text() for path in package.rglob("*.py") if path.name != "codes.py"]
    raised = {code for text in sources for code in re.findall(r'"(D\d{3})"|warning\[(D\d{3})\]', text)}
    assert {first or second for first, second in raised} == set(CODES)
