# SPDX-License-Identifier: Apache-2.0
"""Memory of this process as the kernel counts it."""

from __future__ import annotations

from pathlib import Path


def memory_status(key: str) -> int:
    """A memory line of ``/proc/self/status`` in bytes.

    Args:
        key: VmHWM (peak resident), VmRSS, RssAnon (copies) or RssFile (mapped files). Unlike ``ru_maxrss``, VmHWM does
            not start from the peak of the process that forked this one.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)
