# SPDX-License-Identifier: Apache-2.0
"""The thread that owns an `EngineCore`: takes requests from any thread and steps while there is work."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable

from hspec_trt.errors import HspecError, RequestError
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.request import Sequence

Command = Callable[[EngineCore], None]


class EngineWorker:
    """Runs a core in a thread of its own.

    Every sequence that is added gets exactly one last update, also when the engine is closed or the loop dies.
    """

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._lock = threading.Lock()  # holds the moment between "still open" and the command's place in the inbox
        self._closed: HspecError | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="hspec_trt-steps", daemon=True)
        self._thread.start()

    def add(self, sequences: Iterable[Sequence]) -> None:
        """Put sequences in the line, together.

        Raises:
            RequestError: R303 once the engine is closed.
        """
        together = list(sequences)

        def command(core: EngineCore) -> None:
            for seq in together:
                core.add(seq)

        self._send(command)

    def cancel(self, sequences: Iterable[Sequence]) -> None:
        """End sequences before the next step; those that ended already stay as they are."""
        together = list(sequences)

        def command(core: EngineCore) -> None:
            for seq in together:
                core.cancel(seq)

        with self._lock:
            if self._closed is None:
                self._inbox.put(command)

    def close(self, *, drain: bool = False) -> None:
        """Stop the thread; what runs is finished first (`drain`) or ended with R303."""
        error = RequestError("R303", "the engine is closed")
        with self._lock:
            first, self._closed = self._closed is None, self._closed or error
        if first:
            self._inbox.put(lambda core: self._stop(core, error, drain=drain))
        self._thread.join()

    @property
    def fault(self) -> HspecError | None:
        """R304 once the loop ended by a fault of ours, and nothing can be served any more; None before."""
        return self._closed if self._closed is not None and self._closed.code == "R304" else None

    def _send(self, command: Command) -> None:
        with self._lock:
            if self._closed is not None:
                raise self._closed
            self._inbox.put(command)

    def _stop(self, core: EngineCore, error: HspecError, *, drain: bool) -> None:
        if not drain:
            core.fail_all(error)
        self._stopping = True

    def _run(self) -> None:
        try:
            while not (self._stopping and self.core.is_idle):
                self._obey()
                self.core.step()
        finally:
            self._die()

    def _obey(self) -> None:
        """Run the commands that have come; wait for one where there is nothing else to do."""
        if self.core.is_idle and not self._stopping:
            self._inbox.get()(self.core)
        while not self._inbox.empty():
            self._inbox.get()(self.core)

    def _die(self) -> None:
        """However the loop ended, nobody is left waiting."""
        error = RequestError("R304", "the step loop ended by a fault of ours", fix="Load the engine again")
        with self._lock:
            self._closed = self._closed or error
        while not self._inbox.empty():
            self._inbox.get()(self.core)
        self.core.fail_all(self._closed)
        self.core.close()
