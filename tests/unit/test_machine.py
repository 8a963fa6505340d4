# SPDX-License-Identifier: Apache-2.0
"""Free memory is that of the control group where that has less than the machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from hspec_trt import machine


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [("1000\n", "400\n", 600), ("1000\n", "1200\n", 0), ("max\n", "400\n", None), (None, None, None)],
)
def test_the_control_group_counts(
    limit: str | None, used: str | None, free: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=5000))
    for name, text in (("memory.max", limit), ("memory.current", used)):
        if text is not None:
            (tmp_path / name).write_text(text)
    assert machine.free_memory() == (5000 if free is None else free)
