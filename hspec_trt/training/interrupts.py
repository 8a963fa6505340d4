# SPDX-License-Identifier: Apache-2.0
"""Work that an interrupt must not cut in two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Signals that come inside take effect at the end. Those that nobody handles end the process as ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    found = [(number, signal.getsignal(number)) for number in _SIGNALS]
    held = [(number, handler) for number, handler in found if callable(handler)]
    for number, _ in held:
        signal.signal(number, lambda *arrival: came.append(arrival))
    try:
        yield
    finally:
        for number, handler in held:
            signal.signal(number, handler)
    for arrived, frame in came[:1]:
        dict(held)[signal.Signals(arrived)](arrived, frame)
