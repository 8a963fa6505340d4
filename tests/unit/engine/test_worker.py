# SPDX-License-Identifier: Apache-2.0
"""The child process of a build takes no more memory than it needs."""

from __future__ import annotations

import ctypes
import multiprocessing
import sys
import time

import psutil
import pytest

from hspec_trt.engine import worker

PIECE = 4096
PIECES = 20_000
KEPT = 50
"""One piece of so many stays, so that what is freed lies in between."""


def _resident_after_freeing(trims: bool) -> float:
    """Resident bytes over those that were allocated, once all but a few small pieces are freed."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    if trims:
        worker.give_back_freed_memory()
    before = psutil.Process().memory_info().rss
    pieces = [libc.malloc(PIECE) for _ in range(PIECES)]
    for piece in pieces:
        ctypes.memset(piece, 1, PIECE)
    full = psutil.Process().memory_info().rss - before
    for index, piece in enumerate(pieces):
        if index % KEPT:
            libc.free(piece)
    deadline = time.monotonic() + 20
    while trims and psutil.Process().memory_info().rss - before > full / 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    return (psutil.Process().memory_info().rss - before) / full


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
@pytest.mark.parametrize("trims", [True, False])
def test_freed_pieces_between_others_go_back_to_the_system(trims: bool) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        share = pool.apply(_resident_after_freeing, (trims,))
    assert (share < 0.5) == trims, "without trimming the allocator keeps them, or this test shows nothing"
