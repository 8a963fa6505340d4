# SPDX-License-Identifier: Apache-2.0
"""A model that the server runs: takes requests and starts them on the engine.

`hspec` and `tokens` say which tensors it reads and writes; both are otherwise the same model. Responses go out by
`responder`, and `watch` looks after what is under way.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hspec_trt.errors import HspecError, RequestError
from hspec_trt.serving.triton.backend import FINAL, Backend, ModelArgs, RequestIn, Sender
from hspec_trt.serving.triton.balance import Balance, board_path
from hspec_trt.serving.triton.book import Book
from hspec_trt.serving.triton.engine import ServedEngine, open_served, place_on_device
from hspec_trt.serving.triton.guard import ServerGuard
from hspec_trt.serving.triton.inputs import Input
from hspec_trt.serving.triton.metrics import Metrics
from hspec_trt.serving.triton.outputs import Output, Writing, write_response
from hspec_trt.serving.triton.parameters import ServedParameters, read_parameters
from hspec_trt.serving.triton.requests import Ask, Reading, ResponseOptions, read_request
from hspec_trt.serving.triton.responder import Responder
from hspec_trt.serving.triton.results import Ending, Piece
from hspec_trt.serving.triton.tickets import Answer, Ticket
from hspec_trt.serving.triton.watch import Watch


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
        self._guard = ServerGuard()  # before anything of CUDA is loaded: it starts a process
        try:
            self._parameters = read_parameters(self._args.parameters, str(self._args.folder / "config.pbtxt"))
            self._engine = _load(self._parameters, self._args)
        except HspecError as error:
            self._guard.close()
            raise self._backend.load_error(error) from error
        self._reading = _reading(form, self._args, self._engine)
        self._writing = Writing(form.outputs, self._args.batched, form.complete)
        self._book = Book(self._engine.limits.max_rows + self._parameters.max_queue_size)
        self._metrics = Metrics(self._backend, self._args, self._engine)
        self._responder = Responder(self._backend, self._writing, self._cancel, self._sent)
        several = self._args.instances > 1
        balance = Balance(board_path(self._args.name), self._args.instance) if several else None
        self._watch = Watch(
            self._backend, self._args, self._parameters, self._engine, self._book, self._metrics, balance
        )
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
        self._watch.level()

    def is_ready(self) -> bool:
        """False once the engine can no longer serve (asked by servers that know this call)."""
        return self._engine.failure is None

    def finalize(self) -> None:
        """End everything; the server calls it when no request is open any more."""
        self._engine.close()
        self._watch.close()
        self._responder.close()
        self._metrics.close()
        self._guard.close()

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
        self._start(ticket)

    def _add_answers(self, ticket: Ticket, batch_index: int, ask: Ask) -> None:
        """Make the answers to one prompt."""
        prompt = self._engine.prompt(ask)
        wanted = self._parameters.exclude_input if ask.response.exclude_input is None else ask.response.exclude_input
        shows_prompt = not (wanted or ask.response.stream)
        for index, builder in enumerate(self._engine.builders(ask)):
            answer = Answer(batch_index, builder, len(prompt.ids))
            if shows_prompt:
                answer.prompt_text, answer.prompt_ids = prompt.text, prompt.ids
            ticket.answers.append(answer)
            sink = self._responder.sink(ticket, answer)
            ticket.sequences.append(self._engine.make(ask, prompt.ids, sink, index=index))

    def _start(self, ticket: Ticket) -> None:
        self._book.enter(ticket)
        try:
            self._engine.start(ticket.sequences)
        except HspecError as error:
            # The watching thread may know the ticket by now: only the ticket may use its sender.
            self._book.strike(ticket)
            ticket.send(self._backend.failure(error), last=True)

    def _stop(self, request_id: str, sender: Sender, response: ResponseOptions, named: frozenset[str]) -> None:
        """End the running request with the same id; its text so far comes with finish reason "cancelled"."""
        found = [ticket for ticket in self._book.tickets() if request_id and ticket.request_id == request_id]
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
        for piece in pieces:
            if piece.ending is not None:
                self._metrics.observe(piece.ending)
        if ticket.finished:
            self._book.strike(ticket)


def _load(parameters: ServedParameters, args: ModelArgs) -> ServedEngine:
    place_on_device(parameters, args.instance)
    return ServedEngine(open_served(parameters.engine_path(args.folder)), parameters)


def _reading(form: Form, args: ModelArgs, engine: ServedEngine) -> Reading:
    tokenizer = engine.tokenizer
    return Reading(form.inputs, args.batched, lambda text: tokenizer.encode(text, special=False), tokenizer.decode)
