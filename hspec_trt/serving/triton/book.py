# SPDX-License-Identifier: Apache-2.0
"""The open requests of one instance. Used by several threads."""

from __future__ import annotations

import threading

from hspec_trt.errors import RequestError
from hspec_trt.serving.triton.tickets import Ticket


class Book:
    """Which requests are open.

    Args:
        most: answers that may be open at once: rows of the engine, and places in the queue.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._tickets: set[Ticket] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._tickets)

    def enter(self, ticket: Ticket) -> None:
        """Note a request as open.

        Raises:
            RequestError: R420 too many are.
        """
        with self._lock:
            count = self._count()
            if count + len(ticket.answers) > self._most:
                found = f"{count} prompts are open, {len(ticket.answers)} more would exceed {self._most}"
                raise RequestError("R420", found, where="max_queue_size", fix="Ask again later")
            self._tickets.add(ticket)

    def strike(self, ticket: Ticket) -> None:
        """Forget a request that is over."""
        with self._lock:
            self._tickets.discard(ticket)

    def tickets(self) -> list[Ticket]:
        """The open requests."""
        with self._lock:
            return list(self._tickets)

    def count_answers(self) -> int:
        """Answers that are open."""
        with self._lock:
            return self._count()

    def _count(self) -> int:
        return sum(len(ticket.answers) for ticket in self._tickets)
