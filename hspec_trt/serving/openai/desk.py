# SPDX-License-Identifier: Apache-2.0
"""Requests that are open: how many there may be, what becomes of them when the server stops, and their last line.

All of it runs in the event loop, except that requests are encoded and checked in threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hspec_trt.errors import HspecError, RequestError
from hspec_trt.runtime.generation import Generation
from hspec_trt.runtime.results import CompletionOutput, RequestOutput
from hspec_trt.serving.openai.faults import DRAINING
from hspec_trt.serving.openai.metrics import Metrics

_LOG: Final = logging.getLogger("hspec_trt.requests")


@dataclass(eq=False)
class Ticket:
    """One open request.

    Attributes:
        path, request_id: for the log.
        generations: one for each prompt.
    """

    path: str
    request_id: str
    generations: list[Generation]
    began: float = field(default_factory=time.monotonic)

    @property
    def outputs(self) -> list[RequestOutput]:
        """Of every prompt."""
        return [one.output for one in self.generations]

    @property
    def answers(self) -> list[CompletionOutput]:
        """Of all prompts."""
        return [answer for output in self.outputs for answer in output.outputs]

    def cancel(self) -> None:
        """End what has not ended, before the next step."""
        for generation in self.generations:
            if not generation.output.finished:
                generation.cancel()

    def fault(self) -> HspecError | None:
        """Why the answers cannot be given, if they cannot; "cancelled" is only seen by a client when we stop."""
        for answer in self.answers:
            if answer.error is not None:
                return answer.error
        return DRAINING if any(answer.finish_reason == "cancelled" for answer in self.answers) else None


class Desk:
    """Takes requests in and sees them out.

    Args:
        max_answers: answers that may be open at once.
    """

    def __init__(self, max_answers: int, metrics: Metrics) -> None:
        self._max_answers, self._metrics = max_answers, metrics
        self._num_answers = 0
        self._open: set[Ticket] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self.draining = False

    async def take(
        self, make: Callable[[], list[Generation]], num_answers: int, *, path: str, request_id: str
    ) -> Ticket:
        """Let a request in and start it.

        Args:
            make: encodes and checks; called in a thread.
            num_answers: how many it will make.

        Raises:
            RequestError: R439 too many are open, R440 the server stops; what `make` raises.
        """
        self._reserve(num_answers)
        try:
            generations = await asyncio.to_thread(make)
            if self.draining:
                raise DRAINING
            for generation in generations:
                generation.start()
        except BaseException:
            self._num_answers -= num_answers
            raise
        ticket = Ticket(path, request_id, generations)
        self._open.add(ticket)
        return ticket

    def release(self, ticket: Ticket, outcome: str) -> None:
        """See a request out, however it went: what still runs is cancelled, and it is counted once it has ended."""
        ticket.cancel()
        task = asyncio.create_task(self._see_out(ticket, outcome))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def drain(self) -> None:
        """Take nothing in any more."""
        self.draining = True

    def end_all(self) -> None:
        """End what is open; its clients are told R440."""
        for ticket in self._open:
            ticket.cancel()

    def _reserve(self, num_answers: int) -> None:
        if self.draining:
            raise DRAINING
        if num_answers > self._max_answers:
            found = f"the request wants {num_answers} answers"
            raise RequestError("R431", found, needed=f"at most {self._max_answers} (n for each prompt)", where="n")
        if self._num_answers + num_answers > self._max_answers:
            found = f"{self._num_answers} answers are open and the request wants {num_answers}"
            raise RequestError("R439", found, needed=f"at most {self._max_answers}", fix="Ask again later")
        self._num_answers += num_answers

    async def _see_out(self, ticket: Ticket, outcome: str) -> None:
        for generation in ticket.generations:
            await generation.aresult()
        self._num_answers -= len(ticket.answers)
        self._open.discard(ticket)
        for answer in ticket.answers:
            self._metrics.observe(answer, self._prompt_len(ticket, answer))
        _LOG.info("request", extra={"fields": self._line(ticket, outcome)})

    @staticmethod
    def _prompt_len(ticket: Ticket, answer: CompletionOutput) -> int:
        return next(len(one.prompt_token_ids) for one in ticket.outputs if answer in one.outputs)

    @staticmethod
    def _line(ticket: Ticket, outcome: str) -> dict[str, object]:
        """A request's line in the log: figures, never text."""
        answers = ticket.answers
        steps, emitted = (sum(getattr(one.drafts, name) for one in answers) for name in ("steps", "emitted"))
        first = min((one.timing.time_to_first_token for one in answers if one.timing.first_token), default=None)
        return {
            "request_id": ticket.request_id,
            "path": ticket.path,
            "outcome": outcome,
            "prompt_tokens": sum(len(one.prompt_token_ids) for one in ticket.outputs),
            "new_tokens": sum(one.length for one in answers),
            "finish_reasons": sorted({str(one.finish_reason) for one in answers}),
            "codes": sorted({one.error.code for one in answers if one.error}),
            "seconds": round(time.monotonic() - ticket.began, 4),
            "first_token_seconds": None if first is None else round(first, 4),
            "accepted_length": round(emitted / steps, 3) if steps else None,
        }
