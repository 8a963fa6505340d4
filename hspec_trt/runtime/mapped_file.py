# SPDX-License-Identifier: Apache-2.0
"""Gives back the memory of a mapped file that was read once and is hardly needed again."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MAPS: Final = Path("/proc/self/smaps")
_MADV_DONTNEED: Final = 4


def let_go(path: Path) -> int:
    """Take a file's pages out of this process's memory wherever it is mapped; they come back when they are read.

    A mapping that was written to is left alone. Nothing happens where the system lists no mappings (Linux does).

    Returns:
        Bytes of address space that were let go.
    """
    libc, total = ctypes.CDLL(None), 0
    for start, end in _unchanged_mappings(path):
        if libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED) == 0:
            total += end - start
    return total


def _unchanged_mappings(path: Path) -> Iterator[tuple[int, int]]:
    """First and last address + 1 of the mappings of a file that hold nothing but what the file has."""
    if not _MAPS.is_file():
        return
    inode, place = str(path.stat().st_ino), None
    for line in _MAPS.read_text().splitlines():
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):  # a mapping: addresses, access, offset, device, inode, path
            is_ours = words[4] == inode and line.endswith(path.name)
            place = words[0] if is_ours else None
        elif place is not None and words[:2] == ["Anonymous:", "0"]:
            start, _, end = place.partition("-")
            yield int(start, 16), int(end, 16)
