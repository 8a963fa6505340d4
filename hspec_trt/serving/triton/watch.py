# SPDX-License-Identifier: Apache-2.0
"""Looks after a served model while it runs: clients that gave up, metrics, an engine that died, a server that stops."""

from __future__ import annotations

import threading
import time
import traceback
from typing import Final

from hspec_trt.errors import HspecError
from hspec_trt.serving.triton.backend import Backend, ModelArgs
from hspec_trt.serving.triton.balance import Balance
from hspec_trt.serving.triton.book import Book
from hspec_trt.serving.triton.engine import ServedEngine
from hspec_trt.serving.triton.metrics import Metrics
from hspec_trt.serving.triton.parameters import ServedParameters

_CANCEL_SHARE: Final = 4.0
"""The look-out for cancelled requests rests this many times as long as a round of it took."""
_STOP_PERIOD_SECONDS: Final = 0.2
"""How often a model with open requests asks whether the server is shutting down."""
_IDLE_SECONDS: Final = 0.02
"""The look-out's rest where no request is open."""
_DEAD: Final = float("inf")
"""The load of an instance that must get no more requests."""


class Watch:
    """The threads that look after one instance.

    Args:
        balance: with several instances: where their loads are told.
    """

    def __init__(
        self,
        backend: Backend,
        args: ModelArgs,
        parameters: ServedParameters,
        engine: ServedEngine,
        book: Book,
        metrics: Metrics,
        balance: Balance | None,
    ) -> None:
        self._backend, self._args, self._parameters = backend, args, parameters
        self._engine, self._book, self._metrics, self._balance = engine, book, metrics, balance
        self.closing = threading.Event()
        self._in_service = True
        self._thread = threading.Thread(target=self._look_after, name="hspec_trt-watch", daemon=True)
        self._thread.start()
        threading.Thread(target=self._look_for_shutdown, name="hspec_trt-shutdown", daemon=True).start()

    def level(self) -> None:
        """With several instances: hold up the server's hand until no other instance has less to do."""
        if self._balance is not None:
            self._tell_load(self._balance)
            self._balance.wait(self.closing)

    def close(self) -> None:
        """End the threads."""
        self.closing.set()
        self._thread.join()
        if self._balance is not None:
            self._balance.close()

    def _tell_load(self, balance: Balance) -> None:
        balance.note(self._book.count_answers() if self._engine.failure is None else _DEAD)

    def _look_after(self) -> None:
        period = self._parameters.cancel_period_ms / 1e3
        next_stats, pause = 0.0, period
        while not self.closing.wait(pause):
            began = time.monotonic()
            try:
                self._look_for_cancelled()
                if began >= next_stats:
                    next_stats = began + self._parameters.stats_period_ms / 1e3
                    self._metrics.update()
                if self._balance is not None:
                    self._tell_load(self._balance)
                if self._in_service:
                    self._check_engine()
            except Exception:  # the border of the thread: the next round may do better, and there must be one
                self._backend.log(traceback.format_exc(), error=True)
            rest = period if len(self._book) else max(period, _IDLE_SECONDS)
            pause = max(rest, _CANCEL_SHARE * (time.monotonic() - began))

    def _look_for_shutdown(self) -> None:
        """Ends what is open when the server stops, which would otherwise wait for it in vain."""
        while not self.closing.wait(_STOP_PERIOD_SECONDS):
            if len(self._book) and self._backend.server_stops(self._args.name):
                self._engine.close()
                return

    def _look_for_cancelled(self) -> None:
        for ticket in self._book.tickets():
            if not ticket.cancelled_by_client and ticket.client_gave_up():
                ticket.cancelled_by_client = True
                self._engine.cancel(ticket.sequences)

    def _check_engine(self) -> None:
        failure = self._engine.failure
        if failure is not None:
            self._in_service = False
            self._leave_service(failure)
        elif not len(self._book):
            self._engine.probe()

    def _leave_service(self, failure: HspecError) -> None:
        """End what is open and take the model out of service, so that the server says it is not ready."""
        self._backend.log(f"{self._args.name}: the engine is dead: {failure}", error=True)
        self._engine.close()
        refusal = self._backend.unload(self._args.name)
        if refusal:
            self._backend.log(
                f"{self._args.name} cannot leave service by itself, and refuses every request: {refusal} "
                "Start the server with --model-control-mode=explicit",
                error=True,
            )
