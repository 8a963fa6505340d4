# SPDX-License-Identifier: Apache-2.0
"""What a caller gets: answers under the names of TensorRT-LLM's and vLLM's ``RequestOutput``.

Turns the updates of the step loop into text, in the caller's thread. It knows tokens and text, not steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hspec_trt.errors import HspecError
from hspec_trt.runtime.detokenizer import Decoder, TextStream
from hspec_trt.runtime.request import Timing, Update
from hspec_trt.runtime.shaper import TopTokens
from hspec_trt.runtime.stats import DraftStats
from hspec_trt.runtime.stop import FinishReason


@dataclass
class CompletionOutput:
    """One answer, or as much of it as there is.

    Attributes:
        index: which of the request's ``n`` answers.
        text: empty where the engine has no tokenizer.
        logprobs: log-probability of each token under the target's raw distribution.
        top_logprobs: most likely tokens of each position with their log-probabilities, where the request wants them.
        text_diff, token_ids_diff: what the last update added; `logprobs_diff` and `top_logprobs_diff` go with them.
        finish_reason: "eos", "stop_token", "stop_string", "length", "cancelled", "error"; None while it goes on.
        stop_reason: the token id or string that ended it, where one did.
        error: with "error": why.
        drafts: with a finish reason: steps, accepted length (`drafts.accepted_length`) and acceptance per position.
        timing: with a finish reason: when it came, began and ended.
    """

    index: int = 0
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[TopTokens] = field(default_factory=list)
    text_diff: str = ""
    token_ids_diff: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: HspecError | None = None
    drafts: DraftStats = field(default_factory=DraftStats)
    timing: Timing = field(default_factory=Timing)

    @property
    def cumulative_logprob(self) -> float:
        """Log-probability of the whole answer."""
        return sum(self.logprobs)

    @property
    def finished(self) -> bool:
        """True once there is a finish reason."""
        return self.finish_reason is not None

    @property
    def length(self) -> int:
        """Tokens of the answer."""
        return len(self.token_ids)

    @property
    def logprobs_diff(self) -> list[float]:
        """Log-probabilities of the tokens that the last update added."""
        return self.logprobs[len(self.logprobs) - len(self.token_ids_diff) :]

    @property
    def top_logprobs_diff(self) -> list[TopTokens]:
        """Most likely tokens at the positions that the last update added; empty where the request wants none."""
        return self.top_logprobs[len(self.top_logprobs) - len(self.token_ids_diff) :] if self.top_logprobs else []

    @property
    def accepted_length(self) -> float:
        """Mean tokens of a step of this answer, the bonus token included; with a finish reason."""
        return self.drafts.accepted_length

    @property
    def acceptance_by_position(self) -> list[float]:
        """Share of the drafts verified at each position that were accepted; with a finish reason."""
        return self.drafts.acceptance_by_position

    def clear_diffs(self) -> None:
        """Nothing is new, until the next update."""
        self.text_diff, self.token_ids_diff = "", []


@dataclass
class RequestOutput:
    """A request and its answers.

    Attributes:
        prompt: the text that was asked, None for a prompt of token ids.
        outputs: ``n`` answers.
    """

    request_id: int
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]

    @property
    def finished(self) -> bool:
        """True once every answer has ended."""
        return all(output.finished for output in self.outputs)

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache saved the first answer; once it ended."""
        return self.outputs[0].timing.cached_tokens


class AnswerBuilder:
    """Puts one answer together.

    Args:
        output: brought up to date by every update.
        decoder: None where the engine has no tokenizer.
        stop: the request's stop strings.
    """

    def __init__(self, output: CompletionOutput, decoder: Decoder | None, stop: tuple[str, ...]) -> None:
        self.output = output
        self._text = TextStream(decoder, stop) if decoder else None

    def apply(self, update: Update) -> None:
        """Take one update in."""
        out = self.output
        out.token_ids_diff = update.token_ids
        out.token_ids += update.token_ids
        out.logprobs += update.logprobs
        out.top_logprobs += update.top_logprobs
        out.finish_reason, out.error = update.finish, update.error
        out.text_diff = self._decode(update)
        out.text += out.text_diff
        if update.drafts and update.timing:
            out.drafts, out.timing = update.drafts, update.timing
        if update.finish in ("eos", "stop_token"):
            out.stop_reason = update.token_ids[-1]
        elif update.finish == "stop_string" and self._text:
            out.stop_reason = self._text.stop

    def _decode(self, update: Update) -> str:
        if self._text is None:
            return ""
        ended_by_id = update.finish in ("eos", "stop_token")
        text = self._text.push(update.token_ids[:-1] if ended_by_id else update.token_ids)
        return text + self._text.flush() if update.finish else text
