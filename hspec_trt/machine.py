# SPDX-License-Identifier: Apache-2.0
"""What this machine has to give."""

from __future__ import annotations

from pathlib import Path

import psutil

CONTROL_GROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes that this process may still take, of the machine or of its control group, whichever has less."""
    free = int(psutil.virtual_memory().available)
    limit, used = CONTROL_GROUP / "memory.max", CONTROL_GROUP / "memory.current"
    if limit.is_file() and used.is_file() and (text := limit.read_text().strip()).isdigit():
        free = min(free, max(int(text) - int(used.read_text()), 0))
    return free
