# SPDX-License-Identifier: Apache-2.0
"""What a served model has to say about one answer, before it becomes tensors."""

from __future__ import annotations

from dataclasses import dataclass

from hspec_trt.runtime.stop import FinishReason


@dataclass(frozen=True)
class Ending:
    """The figures of an answer that has ended.

    Attributes:
        reason: why it ended.
        stop: the stop string or stop token that ended it; empty for every other reason.
        num_input_tokens, num_output_tokens: tokens of the prompt, and new ones that were kept.
        reused_pages, total_pages: pages that the prefix cache gave, and all that the answer took.
        arrived, scheduled, first_token, last_token: seconds of a monotonic clock; 0 where it did not come to it.
        drafted, accepted: drafts that were verified, and those of them that were kept.
        accepted_length: mean tokens of a decode step.
    """

    reason: FinishReason
    stop: str = ""
    num_input_tokens: int = 0
    num_output_tokens: int = 0
    reused_pages: int = 0
    total_pages: int = 0
    arrived: float = 0.0
    scheduled: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    drafted: int = 0
    accepted: int = 0
    accepted_length: float = 0.0

    @property
    def acceptance_rate(self) -> float:
        """Share of the verified drafts that were accepted."""
        return self.accepted / self.drafted if self.drafted else 0.0


NOT_ENDED = Ending("length")
"""Stands for the figures of an answer that goes on: all zero."""


@dataclass(frozen=True)
class Piece:
    """New text of one answer, and its figures where it has ended.

    Attributes:
        batch_index: which prompt of the request; `sequence_index`: which of the prompt's answers.
        token_ids, logprobs: the tokens whose text this is, or that gave none yet.
        prompt_text, prompt_ids: shown before them where the prompt is part of the output.
    """

    batch_index: int
    sequence_index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ending: Ending | None = None
    prompt_text: str = ""
    prompt_ids: tuple[int, ...] = ()

    @property
    def shown_text(self) -> str:
        """Prompt and text."""
        return self.prompt_text + self.text

    @property
    def shown_ids(self) -> tuple[int, ...]:
        """Prompt and tokens."""
        return self.prompt_ids + self.token_ids

    @property
    def figures(self) -> Ending:
        """The ending, or zeros."""
        return self.ending or NOT_ENDED
