# SPDX-License-Identifier: Apache-2.0
"""One engine under OpenAI's interface: from a checked body to a reply that is under way. It knows no HTTP server."""

from __future__ import annotations

import time
from functools import partial

from starlette.responses import Response

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import LoadError, RequestError
from hspec_trt.runtime.chat import ChatTemplate
from hspec_trt.runtime.generation import Generation
from hspec_trt.runtime.llm import LLM, Prompt
from hspec_trt.serving.openai.chat import ChatWriter, prompt_maker
from hspec_trt.serving.openai.completions import CompletionWriter, prompts_of
from hspec_trt.serving.openai.desk import Desk, Ticket
from hspec_trt.serving.openai.metrics import Metrics
from hspec_trt.serving.openai.options import ServeOptions
from hspec_trt.serving.openai.replies import Model, ModelList
from hspec_trt.serving.openai.sampling import chat_params, completion_params
from hspec_trt.serving.openai.schema import ChatRequest, CompletionRequest, Request
from hspec_trt.serving.openai.sending import Reply, StreamReply, WholeReply
from hspec_trt.serving.openai.tool_choice import use_tools
from hspec_trt.serving.openai.tools import find_format
from hspec_trt.serving.openai.writers import Heading, Writer


class Service:
    """Answers requests from a loaded engine.

    Raises:
        LoadError: L021, L041: the chat template of the options cannot be used.
    """

    def __init__(self, llm: LLM, options: ServeOptions) -> None:
        self.llm, self.options = llm, options
        self.model_names = options.model_names or (llm.folder.path.resolve().name,)
        if options.chat_template is not None:
            llm.chat_template = _read_template(llm, options)
        self._tool_format = find_format(options.tool_format, llm.chat_template)
        self.metrics = Metrics(llm.core, self.model_names[0], options.metrics_prefix)
        self.desk = Desk(options.max_answers, self.metrics)
        self._created = int(time.time())

    async def complete(self, body: CompletionRequest, request_id: str) -> Response:
        """Answer ``/v1/completions``.

        Raises:
            RequestError: the request cannot be served.
        """
        heading, params, prompts = self._heading(body, "cmpl"), completion_params(body), prompts_of(body)
        ticket = await self.desk.take(
            lambda: [self._prepare(prompt, params, body) for prompt in prompts],
            len(prompts) * max(params.n, 1),
            path="/v1/completions",
            request_id=request_id,
        )
        return self._reply(ticket, CompletionWriter(body, heading, self.llm, prompts), body)

    async def chat(self, body: ChatRequest, request_id: str) -> Response:
        """Answer ``/v1/chat/completions``.

        Raises:
            RequestError: the request cannot be served.
        """
        heading = self._heading(body, "chatcmpl")
        use, params = use_tools(body, chat_params(body), self._tool_format)
        make_prompt = prompt_maker(body, use, self.llm)
        ticket = await self.desk.take(
            lambda: [self._prepare(make_prompt(), params, body)],
            max(params.n, 1),
            path="/v1/chat/completions",
            request_id=request_id,
        )
        return self._reply(ticket, ChatWriter(body, heading, self.llm, use), body)

    def models(self) -> ModelList:
        """What is served."""
        folder = self.llm.folder
        length = folder.manifest.limits.max_seq_len
        make = partial(Model, created=self._created, root=folder.path.name, max_model_len=length)
        return ModelList(data=[make(id=name) for name in self.model_names])

    def model(self, name: str) -> Model:
        """One model.

        Raises:
            RequestError: R438, it is not served.
        """
        self._check_model(name)
        return next(one for one in self.models().data if one.id == name)

    def _heading(self, body: Request, prefix: str) -> Heading:
        if body.model is not None:
            self._check_model(body.model)
        return Heading.new(prefix, body.model or self.model_names[0])

    def _check_model(self, name: str) -> None:
        if name not in self.model_names:
            raise RequestError("R438", f"model {name[:100]!r}", needed=f"one of {', '.join(self.model_names)}")

    def _prepare(self, prompt: Prompt, params: SamplingParams, body: Request) -> Generation:
        return self.llm.prepare(prompt, params, streaming=bool(body.stream), priority=body.priority or 0)

    def _reply(self, ticket: Ticket, writer: Writer, body: Request) -> Reply:
        seconds = self.options.write_seconds
        if not body.stream:
            return WholeReply(ticket, self.desk, writer, seconds)
        with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        return StreamReply(ticket, self.desk, writer, seconds, with_usage=with_usage)


def _read_template(llm: LLM, options: ServeOptions) -> ChatTemplate:
    path = options.chat_template
    try:
        text = b"" if path is None else path.read_bytes()
        text.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError("L041", f"the chat template cannot be read: {error}", where=str(path)) from error
    if llm.tokenizer is None:
        raise LoadError("L041", "a chat template for an engine without a tokenizer", fix="Build the engine with one")
    config = llm.folder.text("tokenizer_config.json") or b"{}"
    template = ChatTemplate.from_files({"tokenizer_config.json": config, "chat_template.jinja": text})
    if template is None:
        raise LoadError("L041", "the chat template is empty", where=str(path))
    return template
