# SPDX-License-Identifier: Apache-2.0
"""The table of codes is the list of what the suite raises of its own."""

from __future__ import annotations

import re
from pathlib import Path

import hspec_trt.suite
from hspec_trt.suite.codes import CODES


def test_table_and_sources_agree() -> None:
    sources = [path for path in Path(hspec_trt.suite.__file__).parent.glob("*.py") if path.name != "codes.py"]
    raised = {code for path in sources for code in re.findall(r'"(R5\d{2})"', path.read_text())}
    assert raised == set(CODES)
