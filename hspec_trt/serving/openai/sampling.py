# SPDX-License-Identifier: Apache-2.0
"""Fields of a body to `SamplingParams`. What is left out takes the default there; values are checked by the runtime."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from hspec_trt.config.sampling import GuidedDecodingParams, SamplingParams
from hspec_trt.errors import RequestError
from hspec_trt.serving.openai.schema import (
    ChatRequest,
    ChoiceFormat,
    CompletionRequest,
    GrammarFormat,
    JsonObjectFormat,
    JsonSchemaFormat,
    RegexFormat,
    Request,
    ResponseFormat,
)

COMPLETION_TOKENS: Final = 16
"""New tokens of a completion that does not say how many, as OpenAI has it; a chat goes on to the engine's limit."""
_AS_THEY_ARE: Final = (
    "n",
    "max_tokens",
    "temperature",
    "top_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "top_k",
    "min_p",
    "min_tokens",
    "repetition_penalty",
    "ignore_eos",
    "drafts",
    "num_drafts",
    "draft_source",
)


def completion_params(body: CompletionRequest) -> SamplingParams:
    """Options of a completion.

    Raises:
        RequestError: R431 options that contradict each other.
    """
    params = _shared(body)
    if body.best_of is not None and body.best_of != params.n:
        raise RequestError("R431", f"best_of is {body.best_of}", needed=f"n, which is {params.n}", where="best_of")
    if body.echo and body.logprobs is not None:
        found = "echo with logprobs wants log-probabilities of the prompt, which are not computed"
        raise RequestError("R431", found, where="echo", fix="Leave one of them out")
    max_tokens = COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    return replace(params, max_tokens=max_tokens, logprobs=body.logprobs or 0)


def chat_params(body: ChatRequest) -> SamplingParams:
    """Options of a chat completion.

    Raises:
        RequestError: R431 options that contradict each other.
    """
    params = _shared(body)
    if body.top_logprobs and not body.logprobs:
        raise RequestError("R431", "top_logprobs without logprobs", needed="logprobs: true", where="top_logprobs")
    both = (body.max_tokens, body.max_completion_tokens)
    if None not in both and both[0] != both[1]:
        found = f"max_tokens is {both[0]}, max_completion_tokens is {both[1]}"
        raise RequestError("R431", found, where="max_completion_tokens", fix="Send one of them")
    most = body.max_completion_tokens if body.max_tokens is None else body.max_tokens
    return replace(params, max_tokens=most, logprobs=body.top_logprobs or 0)


def _shared(body: Request) -> SamplingParams:
    if body.stream_options is not None and not body.stream:
        raise RequestError("R431", "stream_options without stream", needed="stream: true", where="stream_options")
    given = {name: value for name in _AS_THEY_ARE if (value := getattr(body, name)) is not None}
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return replace(
        SamplingParams(**given),
        stop=stop,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        bad_words=tuple(body.bad_words or ()),
        logit_bias=_bias(body.logit_bias or {}),
        guided_decoding=None if body.response_format is None else _guide(body.response_format),
    )


def _bias(entries: dict[str, float]) -> tuple[tuple[int, float], ...]:
    pairs = []
    for key, bias in entries.items():
        if not (key.isascii() and key.isdigit() and len(key) < 20):
            raise RequestError(
                "R215", f"logit_bias has the key {key[:40]!r}", needed="token ids, such as {'50256': -100}"
            )
        pairs.append((int(key), bias))
    return tuple(pairs)


def _guide(form: ResponseFormat) -> GuidedDecodingParams | None:
    if isinstance(form, JsonObjectFormat):
        return GuidedDecodingParams(json_object=True)
    if isinstance(form, JsonSchemaFormat):
        schema = form.json_schema.schema_
        return GuidedDecodingParams(json=json.dumps({"type": "object"} if schema is None else schema))
    if isinstance(form, RegexFormat):
        return GuidedDecodingParams(regex=form.regex)
    if isinstance(form, GrammarFormat):
        return GuidedDecodingParams(grammar=form.grammar)
    if isinstance(form, ChoiceFormat):
        return GuidedDecodingParams(choice=tuple(form.choice))
    return None
