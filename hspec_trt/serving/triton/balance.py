# SPDX-License-Identifier: Apache-2.0
"""Spreads requests over the instances of a model.

The server hands a request to any instance that is not inside ``execute``. A served model leaves ``execute`` at once, so
one instance could get every request. An instance that has more open answers than another therefore stays inside until
that has changed, and the server takes the other one. The instances, each a process, know of each other through a small
mapped file.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import numpy as np

from hspec_trt.serving.triton.repository import MAX_INSTANCES

_STALE_SECONDS: Final = 1.0
"""An instance that was silent for so long counts as gone."""
_LOOK_SECONDS: Final = 0.002


class Balance:
    """One instance's view of all instances of its model.

    Args:
        path: the mapped file: float64 ``[MAX_INSTANCES, 2]``, open answers and the time of the last sign of life.
        instance: number of this instance.
    """

    def __init__(self, path: Path, instance: int) -> None:
        self._path, self._instance = path, instance
        size = MAX_INSTANCES * 2 * 8
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, size)  # zeros where it is new, and leaves what others wrote
        os.close(descriptor)
        self._board = np.memmap(path, np.float64, "r+", shape=(MAX_INSTANCES, 2))
        self.note(0)

    def note(self, open_answers: float) -> None:
        """Give a sign of life, and tell the others how much there is to do here; infinity asks for nothing more."""
        self._board[self._instance] = open_answers, time.monotonic()

    def wait(self, closing: threading.Event) -> None:
        """Return once no other instance has less to do."""
        while self._is_ahead() and not closing.wait(_LOOK_SECONDS):
            pass

    def close(self) -> None:
        """Leave the board; the last one takes it away."""
        self._board[self._instance] = 0.0, 0.0
        if not self._alive().any():
            self._path.unlink(missing_ok=True)

    def _alive(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.asarray(time.monotonic() - self._board[:, 1] < _STALE_SECONDS)

    def _is_ahead(self) -> bool:
        return bool(self._board[self._instance, 0] > self._board[self._alive(), 0].min(initial=np.inf))


def board_path(model: str) -> Path:
    """The file of a model's instances: all are children of one server process."""
    return Path(tempfile.gettempdir()) / f"hspec_trt-{os.getuid()}-{os.getppid()}-{model}.instances"
