# SPDX-License-Identifier: Apache-2.0
"""A model that the server runs: takes requests, starts them on the engine, and looks after those under way.

`hspec` and `tokens` say which tensors it reads and writes; both are otherwise the same model.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hspec_trt.errors import HspecError, RequestError
from hspec_trt.serving.triton.backend import FINAL, Backend, ModelArgs, RequestIn, Sender
from hspec_trt.serving.triton.balance import Balance, board_path
from hspec_trt.serving.triton.engine import ServedEngine, open_served, place_on_device
from hspec_trt.serving.triton.inputs import Input
from hspec_trt.serving.triton.metrics import Metrics
from hspec_trt.serving.triton.outputs import Output, Writing, write_response
from hspec_trt.serving.triton.parameters import ServedParameters, read_parameters
from hspec_trt.serving.triton.requests import Ask, Reading, ResponseOptions, read_request
from hspec_trt.serving.triton.responder import Responder
from hspec_trt.serving.triton.results import Ending, Piece
from hspec_trt.serving.triton.tickets import Answer, Ticket

_CANCEL_SHARE: Final = 4.0
"""The look-out for cancelled requests rests this many times as long as a round of it took."""
_STOP_PERIOD_SECONDS: Final = 0.2
"""How often a model with open requests asks whether the server is shutting down."""
_IDLE_SECONDS: Final = 0.02
"""Its rest where no request is open."""


@dataclass(frozen=True)
class Form:
    """How a served model differs from others.

    Attributes:
        inputs, outputs: its tensors.
        complete: every output in every response (for a model inside an ensemble).
        send_bare_tokens: a response goes out for tokens that give no text yet.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    complete: bool = False
    send_bare_tokens: bool = False


class ServedModel:
    """One instance of a served model.

    Args:
        utils: the module ``triton_python_backend_utils``.
        args: what the server gives to ``initialize``.
        form: the model's tensors.
    """

    def __init__(self, utils: object, args: Mapping[str, str], form: Form) -> None:
        self._backend, self._args, self._form = Backend(utils), ModelArgs.read(args), form
        try:
            self._parameters = read_parameters(self._args.parameters, str(self._args.folder / "config.pbtxt"))
            self._engine = _load(self._parameters, self._args)
        except HspecError as error:
            raise self._backend.load_error(error) from error
        tokenizer = self._engine.tokenizer
        self._reading = Reading(
            form.inputs,
            self._args.batched,
            lambda text: tokenizer.encode(text, special=False),
            tokenizer.decode,
        )
        self._writing = Writing(form.outputs, self._args.batched, form.complete)
        self._tickets: set[Ticket] = set()
        self._lock = threading.Lock()
        self._metrics = Metrics(self._backend, self._args, self._engine)
        self._responder = Responder(self._backend, self._writing, self._cancel, self._sent)
        self._closing = threading.Event()
        several = self._args.instances > 1
        self._balance = Balance(board_path(self._args.name), self._args.instance) if several else None
        self._watch = threading.Thread(target=self._look_after, name="hspec_trt-watch", daemon=True)
        self._watch.start()
        threading.Thread(target=self._look_for_shutdown, name="hspec_trt-shutdown", daemon=True).start()
        memory = self._engine.memory
        self._backend.log(
            f"{self._args.name} instance {self._args.instance}: engine {self._engine.folder.path}, "
            f"{memory.num_pages} pages for {memory.tokens} tokens"
        )

    def execute(self, requests: Sequence[RequestIn]) -> None:
        """Start requests and return at once; the responses come from another thread."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._accept(request, sender)
            except HspecError as error:
                sender.send(self._backend.failure(error), flags=FINAL)
            except Exception:  # the border to the server: a fault of ours ends this request and no other
                sender.send(self._backend.failure(self._own_fault(traceback.format_exc())), flags=FINAL)

        if self._balance is not None:
            self._balance.note(self._open_answers())
            self._balance.wait(self._closing)

    def is_ready(self) -> bool:
        """False once the engine can no longer serve (asked by servers that know this call)."""
        return self._engine.failure is None

    def finalize(self) -> None:
        """End everything; the server calls it when no request is open any more."""
        self._closing.set()
        self._engine.close()
        self._watch.join()
        self._responder.close()
        self._metrics.close()
        if self._balance is not None:
            self._balance.close()

    def _own_fault(self, text: str) -> RequestError:
        self._backend.log(text, error=True)
        return RequestError("R428", f"a fault of ours: {text.splitlines()[-1]}")

    def _accept(self, request: RequestIn, sender: Sender) -> None:
        arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        asks = read_request(arrays, self._reading)
        named = frozenset(request.requested_output_names())
        named = named if named != self._args.outputs else frozenset()
        response = asks[0].response
        if response.stop:
            self._stop(request.request_id(), sender, response, named)
            return
        if response.stream and not self._args.decoupled:
            found = "streaming asked of a model that gives one response for each request"
            raise RequestError("R426", found, fix="Export with --decoupled on, or leave the flag unset")
        if self._engine.failure is not None:
            raise self._engine.failure
        ticket = Ticket(
            request.request_id(), sender, response, named, self._engine.limits.page_size, self._form.send_bare_tokens
        )
        for batch_index, ask in enumerate(asks):
            self._add_answers(ticket, batch_index, ask)
        self._admit(ticket)
        try:
            self._engine.start(ticket.sequences)
        except HspecError as error:
            self._forget(ticket)
            ticket.send(self._backend.failure(error), last=True)

    def _add_answers(self, ticket: Ticket, batch_index: int, ask: Ask) -> None:
        """Make the answers to one prompt."""
        ids = self._engine.prompt_ids(ask)
        wanted = self._parameters.exclude_input if ask.response.exclude_input is None else ask.response.exclude_input
        shows_prompt = not (wanted or ask.response.stream)
        for index, builder in enumerate(self._engine.builders(ask)):
            answer = Answer(batch_index, builder, len(ids))
            if shows_prompt:
                answer.prompt_text = self._engine.tokenizer.decode(ids) if ask.text is None else ask.text
                answer.prompt_ids = tuple(ids)
            ticket.answers.append(answer)
            sink = self._responder.sink(ticket, answer)
            ticket.sequences.append(self._engine.make(ask, ids, sink, index=index))

    def _admit(self, ticket: Ticket) -> None:
        """Note a request as open, unless too many are."""
        most = self._engine.limits.max_rows + self._parameters.max_queue_size
        with self._lock:
            open_answers = self._count_answers()
            if open_answers + len(ticket.answers) > most:
                found = f"{open_answers} prompts are open, {len(ticket.answers)} more would exceed {most}"
                raise RequestError("R420", found, where="max_queue_size", fix="Ask again later")
            self._tickets.add(ticket)

    def _forget(self, ticket: Ticket) -> None:
        with self._lock:
            self._tickets.discard(ticket)

    def _count_answers(self) -> int:
        return sum(len(ticket.answers) for ticket in self._tickets)

    def _open_answers(self) -> int:
        with self._lock:
            return self._count_answers()

    def _open_tickets(self) -> list[Ticket]:
        with self._lock:
            return list(self._tickets)

    def _stop(self, request_id: str, sender: Sender, response: ResponseOptions, named: frozenset[str]) -> None:
        """End the running request with the same id; its text so far comes with finish reason "cancelled"."""
        found = [ticket for ticket in self._open_tickets() if request_id and ticket.request_id == request_id]
        if not found:
            raise RequestError("R425", f"stop: no request with the id {request_id!r} is open", where="stop")
        for ticket in found:
            self._cancel(ticket)
        piece = Piece(0, 0, "", (), (), Ending("cancelled"))
        sender.send(
            self._backend.response(write_response([piece], replace(response, stop=False), named, self._writing)),
            flags=FINAL,
        )

    def _cancel(self, ticket: Ticket) -> None:
        self._engine.cancel(ticket.sequences)

    def _sent(self, ticket: Ticket, pieces: Iterable[Piece]) -> None:
        endings = [piece.ending for piece in pieces if piece.ending is not None]
        for ending in endings:
            self._metrics.observe(ending)
        if ticket.finished:
            self._forget(ticket)

    def _look_after(self) -> None:
        """The watching thread: clients that gave up, metrics, and an engine that died."""
        period = self._parameters.cancel_period_ms / 1e3
        next_stats, pause, in_service = 0.0, period, True
        while not self._closing.wait(pause):
            began = time.monotonic()
            self._look_for_cancelled()
            if self._balance is not None:
                self._balance.note(self._open_answers())
            if began >= next_stats:
                self._metrics.update()
                next_stats = began + self._parameters.stats_period_ms / 1e3
            in_service = in_service and self._check_engine()
            rest = period if self._tickets else max(period, _IDLE_SECONDS)
            pause = max(rest, _CANCEL_SHARE * (time.monotonic() - began))

    def _look_for_shutdown(self) -> None:
        """A thread of its own: ends what is open when the server stops, which would otherwise wait for it in vain."""
        while not self._closing.wait(_STOP_PERIOD_SECONDS):
            if self._tickets and self._backend.server_stops(self._args.name):
                self._engine.close()
                return

    def _look_for_cancelled(self) -> None:
        for ticket in self._open_tickets():
            if not ticket.cancelled_by_client and ticket.client_gave_up():
                ticket.cancelled_by_client = True
                self._cancel(ticket)

    def _check_engine(self) -> bool:
        """False once the engine is dead; the model has then left service."""
        failure = self._engine.failure
        if failure is not None:
            self._leave_service(failure)
        elif not self._tickets:
            self._engine.probe()
        return failure is None

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


def _load(parameters: ServedParameters, args: ModelArgs) -> ServedEngine:
    place_on_device(parameters, args.instance)
    return ServedEngine(open_served(parameters.engine_path(args.folder)), parameters)
