# SPDX-License-Identifier: Apache-2.0
"""Answers of ``/v1/chat/completions``, whole and in pieces, with tool calls read from the text."""

from __future__ import annotations

from collections.abc import Callable

from hspec_trt.runtime.llm import LLM
from hspec_trt.runtime.results import CompletionOutput, RequestOutput
from hspec_trt.runtime.shaper import TopTokens
from hspec_trt.serving.openai.messages import template_messages, template_tools
from hspec_trt.serving.openai.pieces import Piece
from hspec_trt.serving.openai.replies import (
    AnswerMessage,
    CalledFunction,
    CalledTool,
    ChatChoice,
    ChatCompletion,
    ChatLogprobs,
    TokenLogprob,
    TopLogprob,
    Usage,
    finish_reason,
    stop_reason,
    usage_of,
)
from hspec_trt.serving.openai.schema import ChatRequest
from hspec_trt.serving.openai.tool_choice import ToolUse
from hspec_trt.serving.openai.tools import Found, ParsedCall, ToolReader
from hspec_trt.serving.openai.writers import Heading, TokenTexts


def prompt_maker(body: ChatRequest, use: ToolUse, llm: LLM) -> Callable[[], list[int]]:
    """Lays a conversation out by the model's template; the call takes a while for a long one.

    Raises:
        RequestError: R431, messages that no template can take.
    """
    messages, tools = template_messages(body.messages), template_tools(list(use.shown))
    return lambda: llm.chat_ids(messages, tools=tools, chat_template_kwargs=body.chat_template_kwargs)


class ChatWriter:
    """Writes the answers of one request."""

    def __init__(self, body: ChatRequest, heading: Heading, llm: LLM, use: ToolUse) -> None:
        self._body, self._heading, self._use = body, heading, use
        self._texts = TokenTexts(llm.tokenizer)
        self._readers: dict[int, ToolReader] = {}
        self._num_calls: dict[int, int] = {}

    def whole(self, outputs: list[RequestOutput]) -> ChatCompletion:
        """The answers, once all have ended."""
        (output,) = outputs
        choices = []
        for answer in output.outputs:
            message = self._message(self._read(answer.index, answer.text, last=True), answer.index)
            message.role = "assistant"
            if "content" not in message.model_fields_set:
                message.content = None if message.tool_calls else ""
            logprobs = self._logprobs(answer.token_ids, answer.logprobs, answer.top_logprobs)
            choice = ChatChoice(index=answer.index, message=message, logprobs=logprobs, finish_reason=None)
            choices.append(self._with_end(choice, answer, answer.token_ids))
        made = self._object("chat.completion", choices, usage_of(outputs))
        if self._body.return_token_ids:
            made.prompt_token_ids = output.prompt_token_ids
        return made

    def opening(self, outputs: list[RequestOutput]) -> list[ChatCompletion]:
        """The role of every answer."""
        (output,) = outputs
        made = [self._chunk(answer.index, AnswerMessage(role="assistant", content="")) for answer in output.outputs]
        if self._body.return_token_ids:
            made[0].prompt_token_ids = output.prompt_token_ids
        return made

    def chunk(self, piece: Piece) -> ChatCompletion | None:
        """What a piece adds."""
        delta = self._message(self._read(piece.choice, piece.text, last=piece.ended is not None), piece.choice)
        logprobs = self._logprobs(piece.token_ids, piece.logprobs, piece.top_logprobs)
        if not (delta.model_fields_set or piece.ended or logprobs or self._body.return_token_ids):
            return None
        made = self._chunk(piece.choice, delta, logprobs)
        self._with_end(made.choices[0], piece.ended, piece.token_ids)
        return made

    def closing(self, usage: Usage) -> ChatCompletion:
        """The usage."""
        return self._object("chat.completion.chunk", [], usage)

    def _object(self, kind: str, choices: list[ChatChoice], usage: Usage | None = None) -> ChatCompletion:
        head = self._heading
        return ChatCompletion(
            id=head.id, object=kind, created=head.created, model=head.model, choices=choices, usage=usage
        )

    def _chunk(self, index: int, delta: AnswerMessage, logprobs: ChatLogprobs | None = None) -> ChatCompletion:
        choice = ChatChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=None)
        return self._object("chat.completion.chunk", [choice])

    def _with_end(self, choice: ChatChoice, ended: CompletionOutput | None, token_ids: list[int]) -> ChatChoice:
        if self._body.return_token_ids:
            choice.token_ids = token_ids
        if ended is not None:
            called = self._num_calls.get(choice.index, 0) > 0
            choice.finish_reason = "tool_calls" if called else finish_reason(ended)
            choice.stop_reason = stop_reason(ended)
        return choice

    def _read(self, index: int, text: str, *, last: bool) -> list[Found]:
        """Text and calls of a piece."""
        if self._use.format is None:
            return [text] if text else []
        reader = self._readers.setdefault(index, self._use.format.reader())
        found = reader.push(text)
        return [*found, *reader.flush()] if last else found

    def _message(self, found: list[Found], index: int) -> AnswerMessage:
        message = AnswerMessage()
        text = "".join(one for one in found if isinstance(one, str))
        if text:
            message.content = text
        calls = [self._call(one, index) for one in found if isinstance(one, ParsedCall)]
        kept = [call for call in calls if call.index == 0 or not self._use.one_call]
        if kept:
            message.tool_calls = kept
        return message

    def _call(self, call: ParsedCall, index: int) -> CalledTool:
        number = self._num_calls.get(index, 0)
        self._num_calls[index] = number + 1
        function = CalledFunction(name=call.name, arguments=call.arguments)
        return CalledTool(index=number, id=call.id, type="function", function=function)

    def _logprobs(self, token_ids: list[int], logprobs: list[float], tops: list[TopTokens]) -> ChatLogprobs | None:
        if not self._body.logprobs:
            return None
        content = []
        for place, (token, logprob) in enumerate(zip(token_ids, logprobs, strict=True)):
            likely = [self._top(other, value) for other, value in (tops[place] if tops else [])]
            one = self._top(token, logprob)
            content.append(TokenLogprob(token=one.token, logprob=logprob, bytes=one.bytes, top_logprobs=likely))
        return ChatLogprobs(content=content)

    def _top(self, token: int, logprob: float) -> TopLogprob:
        return TopLogprob(token=self._texts.text(token), logprob=logprob, bytes=list(self._texts.data(token)))
