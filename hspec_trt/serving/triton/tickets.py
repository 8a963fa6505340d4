# SPDX-License-Identifier: Apache-2.0
"""Open requests: the answers that one waits for, and what of them can be sent. Fed by one thread, read by another."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from hspec_trt.errors import HspecError
from hspec_trt.runtime.request import Sequence as RunningSequence
from hspec_trt.runtime.request import Update
from hspec_trt.runtime.results import AnswerBuilder
from hspec_trt.serving.triton.backend import FINAL, Sender
from hspec_trt.serving.triton.requests import ResponseOptions
from hspec_trt.serving.triton.results import Ending, Piece


@dataclass(eq=False)
class Answer:
    """One answer of a request.

    Attributes:
        builder: turns updates into text.
        prompt_text, prompt_ids: to be shown before it, where the prompt is part of the output.
        pending: updates that nobody has looked at; the step loop's thread appends.
        text, token_ids, logprobs: not sent yet.
    """

    batch_index: int
    builder: AnswerBuilder
    num_input_tokens: int
    prompt_text: str = ""
    prompt_ids: tuple[int, ...] = ()
    pending: deque[Update] = field(default_factory=deque)
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sent_ending: bool = False

    @property
    def ended(self) -> bool:
        """True once its last update was applied."""
        return self.builder.output.finished

    def apply_pending(self) -> bool:
        """Take in the updates that have come; False where there were none."""
        found = bool(self.pending)
        while self.pending:
            update = self.pending.popleft()
            self.builder.apply(update)
            self.text += self.builder.output.text_diff
            self.token_ids += update.token_ids
            self.logprobs += update.logprobs
        return found

    def take_piece(self, page_size: int) -> Piece:
        """What is not sent yet."""
        out = self.builder.output
        piece = Piece(
            self.batch_index,
            out.index,
            self.text,
            tuple(self.token_ids),
            tuple(self.logprobs),
            self._ending(page_size) if self.ended else None,
            self.prompt_text,
            self.prompt_ids,
        )
        self.text, self.token_ids, self.logprobs = "", [], []
        self.sent_ending = self.ended
        return piece

    def _ending(self, page_size: int) -> Ending:
        out = self.builder.output
        stop = out.stop_reason if out.finish_reason in ("stop_token", "stop_string") else None
        total = self.num_input_tokens + len(out.token_ids)
        return Ending(
            reason=out.finish_reason or "error",
            stop="" if stop is None else str(stop),
            num_input_tokens=self.num_input_tokens,
            num_output_tokens=len(out.token_ids),
            reused_pages=out.timing.cached_tokens // page_size,
            total_pages=-(-total // page_size),
            arrived=out.timing.arrived,
            scheduled=out.timing.scheduled,
            first_token=out.timing.first_token,
            last_token=out.timing.finished,
            drafted=out.drafts.drafted,
            accepted=out.drafts.num_accepted,
            accepted_length=out.drafts.accepted_length,
        )


@dataclass(eq=False)
class Ticket:
    """An open request.

    Attributes:
        named: outputs that the client asks for by name; empty where it does not say.
        send_bare_tokens: a response goes out for tokens that give no text yet.
        sequences: of the answers, once they were started.
        cancelled_by_client: nobody reads the responses any more.
        queued: the responder knows that there is news. finished: the last response is out.
        lock: held while the sender is used. The server crashes when it is asked about a request that is over
            (seen with release 2.51), so nobody may look for a cancellation while the last response goes out.
    """

    request_id: str
    sender: Sender
    response: ResponseOptions
    named: frozenset[str]
    page_size: int
    send_bare_tokens: bool
    answers: list[Answer] = field(default_factory=list)
    sequences: list[RunningSequence] = field(default_factory=list)
    cancelled_by_client: bool = False
    error: HspecError | None = None
    queued: bool = False
    finished: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, response: object, *, last: bool) -> None:
        """Send a response; nothing happens after the last one."""
        with self.lock:
            if not self.finished:
                self.finished = last
                self.sender.send(response, flags=FINAL if last else 0)

    def client_gave_up(self) -> bool:
        """Ask the server whether the client has cancelled; False once the last response is out."""
        with self.lock:
            return not self.finished and self.sender.is_cancelled()

    def apply_pending(self) -> None:
        """Take in the updates of all answers; the first error is the request's."""
        for answer in self.answers:
            if answer.apply_pending() and self.error is None:
                self.error = answer.builder.output.error

    @property
    def ended(self) -> bool:
        """True once every answer has ended."""
        return all(answer.ended for answer in self.answers)

    def take_pieces(self) -> list[Piece]:
        """What can be sent now: with streaming every answer's news, else all answers once all have ended."""
        if not self.response.stream:
            return [answer.take_piece(self.page_size) for answer in self.answers] if self.ended else []
        return [answer.take_piece(self.page_size) for answer in self.answers if self._has_news(answer)]

    def _has_news(self, answer: Answer) -> bool:
        if answer.ended:
            return not answer.sent_ending
        return bool(answer.text or (self.send_bare_tokens and answer.token_ids))
