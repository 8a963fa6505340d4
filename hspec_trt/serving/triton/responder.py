# SPDX-License-Identifier: Apache-2.0
"""The thread that turns news of answers into responses.

The step loop only puts updates down, so that sending never holds up a step. What has come for a request since its last
response goes out together: under load the responses become fewer and longer, and nothing piles up.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable

from hspec_trt.errors import HspecError, RequestError
from hspec_trt.runtime.request import Sink, Update
from hspec_trt.serving.triton.backend import Backend
from hspec_trt.serving.triton.outputs import Writing, write_response
from hspec_trt.serving.triton.results import Piece
from hspec_trt.serving.triton.tickets import Answer, Ticket

CancelRest = Callable[[Ticket], None]
Done = Callable[[Ticket, list[Piece]], None]


class Responder:
    """Sends the responses of all open requests.

    Args:
        cancel_rest: called where a request is to end early, because an answer failed or nobody listens.
        done: called with each batch of pieces after it was sent, and with an empty list after a request's last
            response.
    """

    def __init__(self, backend: Backend, writing: Writing, cancel_rest: CancelRest, done: Done) -> None:
        self._backend, self._writing = backend, writing
        self._cancel_rest, self._done = cancel_rest, done
        self._ready: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="hspec_trt-responses", daemon=True)
        self._thread.start()

    def sink(self, ticket: Ticket, answer: Answer) -> Sink:
        """Where the step loop puts the updates of an answer. Called in its thread."""

        def put(update: Update) -> None:
            answer.pending.append(update)
            # Seen as queued by mistake only before the thread clears the mark, after which it looks at `pending`.
            if not ticket.queued:
                ticket.queued = True
                self._ready.put(ticket)

        return put

    def close(self) -> None:
        """Send what has come and end the thread."""
        self._ready.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (ticket := self._ready.get()) is not None:
            ticket.queued = False
            try:
                self._serve(ticket)
            except Exception:  # the border of the thread: a fault of ours ends this request and no other
                text = traceback.format_exc()
                self._backend.log(text, error=True)
                self._abandon(ticket, RequestError("R428", f"a fault of ours: {text.splitlines()[-1]}"))

    def _serve(self, ticket: Ticket) -> None:
        ticket.apply_pending()
        if ticket.error is not None or ticket.cancelled_by_client:
            if ticket.ended:
                error = ticket.error or RequestError("R427", "the request was cancelled by its client")
                self._finish(ticket, self._backend.failure(error))
            else:
                self._cancel_rest(ticket)
            return
        pieces = ticket.take_pieces()
        if not pieces:
            return
        batches = [[piece] for piece in pieces] if ticket.response.stream else [pieces]
        last = ticket.ended
        self._done(ticket, pieces)
        for batch in batches[:-1]:
            self._send(ticket, self._made(ticket, batch), last=False)
        if last:
            self._finish(ticket, self._made(ticket, batches[-1]))
        else:
            self._send(ticket, self._made(ticket, batches[-1]), last=False)

    def _made(self, ticket: Ticket, pieces: list[Piece]) -> object:
        return self._backend.response(write_response(pieces, ticket.response, ticket.named, self._writing))

    def _finish(self, ticket: Ticket, response: object) -> None:
        if not ticket.finished:
            self._send(ticket, response, last=True)
            self._done(ticket, [])

    def _send(self, ticket: Ticket, response: object, *, last: bool) -> None:
        try:
            ticket.send(response, last=last)
        except self._backend.send_errors as error:
            if not last:
                self._backend.log(f"request {ticket.request_id!r}: {error}", error=True)
                ticket.cancelled_by_client = True
                self._cancel_rest(ticket)

    def _abandon(self, ticket: Ticket, error: HspecError) -> None:
        ticket.error = ticket.error or error
        if ticket.ended:
            self._finish(ticket, self._backend.failure(error))
        else:
            self._cancel_rest(ticket)
