# SPDX-License-Identifier: Apache-2.0
"""A request under way, as its caller sees it: iterate for the stream, or wait for the result; sync or async."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import AsyncIterator, Iterator

from hspec_trt.runtime.request import Sequence, Sink, Update
from hspec_trt.runtime.results import AnswerBuilder, RequestOutput
from hspec_trt.runtime.worker import EngineWorker


class Generation:
    """Handle of one request.

    Iterating gives the same `RequestOutput` after each update, with what is new in ``text_diff`` and
    ``token_ids_diff`` of the answer that changed. A stream that is left early is cancelled. One caller reads it.
    """

    def __init__(self, worker: EngineWorker, output: RequestOutput, answers: list[AnswerBuilder]) -> None:
        self.output = output
        self._worker, self._answers = worker, answers
        self._updates: queue.SimpleQueue[tuple[int, Update]] = queue.SimpleQueue()
        self._sequences: list[Sequence] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None

    def sink(self, index: int) -> Sink:
        """Where the step loop puts the updates of one answer. Called in its thread."""

        def put(update: Update) -> None:
            self._updates.put((index, update))
            if self._loop is not None and self._news is not None and not self._news.is_set():
                with contextlib.suppress(RuntimeError):  # the caller's loop was closed: nobody waits there any more
                    self._loop.call_soon_threadsafe(self._news.set)

        return put

    def hold(self, sequences: list[Sequence]) -> None:
        """Keep the sequences that `start` hands over."""
        self._sequences = sequences

    def start(self) -> Generation:
        """Hand the request to the step loop; once.

        Raises:
            RequestError: R303, R304: the engine is closed.
        """
        self._worker.add(self._sequences)
        return self

    def cancel(self) -> None:
        """End what has not ended, before the next step; the answers so far come with "cancelled"."""
        self._worker.cancel(self._sequences)

    abort = cancel

    def result(self, timeout: float | None = None) -> RequestOutput:
        """Wait for the whole output.

        Args:
            timeout: seconds; None waits as long as it takes.

        Raises:
            TimeoutError: it took longer; the request goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.output.finished:
            left = None if deadline is None else deadline - time.monotonic()
            try:
                self._apply(*self._updates.get(timeout=left if left is None else max(left, 0.0)))
            except queue.Empty:
                raise TimeoutError(f"no result after {timeout} s") from None
        return self.output

    def __iter__(self) -> Iterator[RequestOutput]:
        try:
            while not self.output.finished:
                self._apply(*self._updates.get())
                yield self.output
        finally:
            if not self.output.finished:
                self.cancel()

    async def aresult(self) -> RequestOutput:
        """As `result`, in an event loop."""
        async for _ in self:
            pass
        return self.output

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            while not self.output.finished:
                self._news.clear()
                while not self._updates.empty():
                    self._apply(*self._updates.get_nowait())
                    yield self.output
                if not self.output.finished:
                    await self._news.wait()
        finally:
            if not self.output.finished:
                self.cancel()

    def _apply(self, index: int, update: Update) -> None:
        for answer in self._answers:
            answer.output.clear_diffs()
        self._answers[index].apply(update)
