# SPDX-License-Identifier: Apache-2.0
"""Answers of ``/v1/completions``, whole and in pieces."""

from __future__ import annotations

from collections import Counter

from hspec_trt.runtime.llm import LLM, Prompt
from hspec_trt.runtime.results import CompletionOutput, RequestOutput
from hspec_trt.runtime.shaper import TopTokens
from hspec_trt.serving.openai.pieces import Piece
from hspec_trt.serving.openai.replies import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    Usage,
    finish_reason,
    stop_reason,
    usage_of,
)
from hspec_trt.serving.openai.schema import CompletionRequest
from hspec_trt.serving.openai.writers import Heading, TokenTexts


def prompts_of(body: CompletionRequest) -> list[Prompt]:
    """The prompts of a body: one text or list of ids, or several."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt or isinstance(prompt[0], int):
        return [[token for token in prompt if isinstance(token, int)]]
    return [one for one in prompt if not isinstance(one, int)]


class CompletionWriter:
    """Writes the answers of one request.

    Args:
        prompts: as they were asked, for ``echo``.
    """

    def __init__(self, body: CompletionRequest, heading: Heading, llm: LLM, prompts: list[Prompt]) -> None:
        self._body, self._heading, self._prompts = body, heading, prompts
        self._tokenizer, self._texts = llm.tokenizer, TokenTexts(llm.tokenizer)
        self._offsets: Counter[int] = Counter()

    def whole(self, outputs: list[RequestOutput]) -> Completion:
        """The answers, once all have ended."""
        choices = [
            self._choice(
                place * len(output.outputs) + answer.index,
                self._echo(place) + answer.text,
                answer.token_ids,
                self._logprobs(answer.index, answer.token_ids, answer.logprobs, answer.top_logprobs),
                answer,
                prompt=output,
            )
            for place, output in enumerate(outputs)
            for answer in output.outputs
        ]
        return self._completion(choices, usage_of(outputs))

    def opening(self, outputs: list[RequestOutput]) -> list[Completion]:
        """The prompts, where they are wanted."""
        if not self._body.echo and not self._body.return_token_ids:
            return []
        return [
            self._completion(
                [
                    self._choice(
                        place * len(output.outputs) + answer.index, self._echo(place), [], None, None, prompt=output
                    )
                ]
            )
            for place, output in enumerate(outputs)
            for answer in output.outputs
        ]

    def chunk(self, piece: Piece) -> Completion | None:
        """What a piece adds."""
        logprobs = self._logprobs(piece.choice, piece.token_ids, piece.logprobs, piece.top_logprobs)
        if not (piece.text or piece.ended or logprobs or self._body.return_token_ids):
            return None
        return self._completion([self._choice(piece.choice, piece.text, piece.token_ids, logprobs, piece.ended)])

    def closing(self, usage: Usage) -> Completion:
        """The usage."""
        return self._completion([], usage)

    def _completion(self, choices: list[CompletionChoice], usage: Usage | None = None) -> Completion:
        head = self._heading
        return Completion(
            id=head.id, object="text_completion", created=head.created, model=head.model, choices=choices, usage=usage
        )

    def _choice(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        logprobs: CompletionLogprobs | None,
        ended: CompletionOutput | None,
        *,
        prompt: RequestOutput | None = None,
    ) -> CompletionChoice:
        choice = CompletionChoice(
            index=index, text=text, logprobs=logprobs, finish_reason=finish_reason(ended) if ended else None
        )
        if ended:
            choice.stop_reason = stop_reason(ended)
        if self._body.return_token_ids:
            choice.token_ids = token_ids
            if prompt is not None:
                choice.prompt_token_ids = prompt.prompt_token_ids
        return choice

    def _echo(self, place: int) -> str:
        if not self._body.echo:
            return ""
        prompt = self._prompts[place]
        if isinstance(prompt, str):
            return prompt
        return self._tokenizer.decode(prompt) if self._tokenizer else ""

    def _logprobs(
        self, choice: int, token_ids: list[int], logprobs: list[float], tops: list[TopTokens]
    ) -> CompletionLogprobs | None:
        """Lists over some tokens; the chosen one is in its list of most likely ones even if it is none of them."""
        if self._body.logprobs is None:
            return None
        texts, offsets = [self._texts.text(token) for token in token_ids], []
        for text in texts:
            offsets.append(self._offsets[choice])
            self._offsets[choice] += len(text)
        lists = []
        for place, (text, logprob) in enumerate(zip(texts, logprobs, strict=True)):
            likely = tops[place] if tops else []
            lists.append({text: logprob} | {self._texts.text(token): value for token, value in likely})
        return CompletionLogprobs(tokens=texts, token_logprobs=logprobs, top_logprobs=lists, text_offset=offsets)
