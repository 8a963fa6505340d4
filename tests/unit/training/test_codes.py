# SPDX-License-Identifier: Apache-2.0
"""The table of codes is the list of what modules and training raise."""

from __future__ import annotations

import re
from pathlib import Path

import hspec_trt.modeling
import hspec_trt.training
from hspec_trt.checkpoint.formats.codes import CODES as FORMAT_CODES
from hspec_trt.training.codes import CODES


def test_table_and_sources_agree() -> None:
    folders = [Path(package.__file__).parent for package in (hspec_trt.modeling, hspec_trt.training)]
    sources = [path for folder in folders for path in folder.rglob("*.py") if path.name != "codes.py"]
    raised = {code for path in sources for code in re.findall(r'"(D\d{3})"', path.read_text())}
    assert raised == set(CODES) | (raised & set(FORMAT_CODES))
    assert not set(CODES) & set(FORMAT_CODES)
