# SPDX-License-Identifier: Apache-2.0
"""Bodies of answers: OpenAI's objects, with what we add (``stop_reason``, ``token_ids``, ``usage.drafts``).

Fields that are not set are left out. Which field of which object is set when is the writers' business.
"""

from __future__ import annotations

from pydantic import BaseModel

from hspec_trt.runtime.results import CompletionOutput, RequestOutput
from hspec_trt.runtime.stats import DraftStats


class PromptDetails(BaseModel):
    """Of the prompt tokens."""

    cached_tokens: int


class CompletionDetails(BaseModel):
    """Of the new tokens: drafts that were verified, by what became of them."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class DraftUsage(BaseModel):
    """What drafting did for a request."""

    steps: int
    verified: int
    accepted: int
    accepted_length: float
    acceptance_by_position: list[float]


class Usage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails
    drafts: DraftUsage


class CompletionLogprobs(BaseModel):
    """Lists over the tokens of a piece."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """An answer of a completion, or a piece of one."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None = None
    token_ids: list[int] = []
    prompt_token_ids: list[int] = []


class Completion(BaseModel):
    """``/v1/completions``."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class CalledFunction(BaseModel):
    """Name and arguments of a call, as JSON text."""

    name: str
    arguments: str


class CalledTool(BaseModel):
    """A call that the model made."""

    index: int = 0
    id: str
    type: str = "function"
    function: CalledFunction


class AnswerMessage(BaseModel):
    """The model's message, or what is new of it."""

    role: str = "assistant"
    content: str | None = None
    tool_calls: list[CalledTool] = []


class TopLogprob(BaseModel):
    """A token and how likely it is."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """A token of the answer."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    """Log-probabilities of a message's tokens."""

    content: list[TokenLogprob]


class ChatChoice(BaseModel):
    """An answer of a chat completion (`message`), or a piece of one (`delta`)."""

    index: int
    message: AnswerMessage | None = None
    delta: AnswerMessage | None = None
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None = None
    token_ids: list[int] = []


class ChatCompletion(BaseModel):
    """``/v1/chat/completions``."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] = []


class Model(BaseModel):
    """A model that is served."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "hspec_trt"
    root: str
    max_model_len: int


class ModelList(BaseModel):
    """``/v1/models``."""

    object: str = "list"
    data: list[Model]


def usage_of(outputs: list[RequestOutput]) -> Usage:
    """Tokens of a request that ended."""
    answers = [answer for output in outputs for answer in output.outputs]
    prompt = sum(len(output.prompt_token_ids) for output in outputs)
    new, drafts = sum(answer.length for answer in answers), DraftStats()
    for answer in answers:
        drafts.add(answer.drafts)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=new,
        total_tokens=prompt + new,
        prompt_tokens_details=PromptDetails(cached_tokens=sum(output.num_cached_tokens for output in outputs)),
        completion_tokens_details=CompletionDetails(
            accepted_prediction_tokens=drafts.num_accepted,
            rejected_prediction_tokens=drafts.drafted - drafts.num_accepted,
        ),
        drafts=DraftUsage(
            steps=drafts.steps,
            verified=drafts.drafted,
            accepted=drafts.num_accepted,
            accepted_length=drafts.accepted_length,
            acceptance_by_position=drafts.acceptance_by_position,
        ),
    )


def finish_reason(answer: CompletionOutput) -> str:
    """OpenAI's word for how an answer ended."""
    return "length" if answer.finish_reason == "length" else "stop"


def stop_reason(answer: CompletionOutput) -> int | str | None:
    """The request's own stop string or id that ended an answer."""
    return answer.stop_reason if answer.finish_reason in ("stop_string", "stop_token") else None
