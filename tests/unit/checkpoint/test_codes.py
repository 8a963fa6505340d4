# SPDX-License-Identifier: Apache-2.0
"""The table of codes is the list of what the package raises."""

from __future__ import annotations

import re
from pathlib import Path

import hspec_trt.checkpoint
from hspec_trt.checkpoint.codes import CODES

RESERVED = {"C002"}  # for ONNX files, which other parts read


def test_table_and_sources_agree() -> None:
    package = Path(hspec_trt.checkpoint.__file__).parent
    sources = [path.read_text() for path in package.rglob("*.py") if path.name != "codes.py"]
    raised = {code for text in sources for code in re.findall(r'"(C\d{3})"', text)}
    assert raised == set(CODES) - RESERVED
    assert all(re.fullmatch(r"C0(0[1-9]|[1-3]\d|40)", code) for code in CODES)
