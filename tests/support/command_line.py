# SPDX-License-Identifier: Apache-2.0
"""The command line as tests call it, and how a command ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMITS = ("--max-batch-size", "4", "--page-size", "16", "--max-num-tokens", "64")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
AS_READER = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""Takes root's right to read and write everything, under which permissions could not be tested in a container."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
