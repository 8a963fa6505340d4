# SPDX-License-Identifier: Apache-2.0
"""One answer on its way through the runtime: what was asked, where it stands, and whom to tell.

It holds what is touched when a sequence joins, leaves or ends; what changes every step lies in
`hspec_trt.runtime.table`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import HspecError
from hspec_trt.runtime.detokenizer import TextStream
from hspec_trt.runtime.lookup import HostDrafts
from hspec_trt.runtime.prefix import PrefixChain
from hspec_trt.runtime.shaper import Shaper, TopTokens
from hspec_trt.runtime.stats import DraftStats
from hspec_trt.runtime.stop import FinishReason, StopRules

NO_SLOT: Final = -1
PRIORITY_STEP: Final = 64
"""Places in the queue that one unit of priority is worth: a later arrival is overtaken, but never for ever."""


@dataclass(frozen=True)
class Timing:
    """When things happened to one answer, seconds of a monotonic clock; 0 where they did not.

    Attributes:
        arrived, scheduled, first_token, finished: points in time; scheduled is when it first got a row.
        cached_tokens: prompt tokens that were not run because their pages were there.
        preemptions: times the answer lost its pages and was computed again.
    """

    arrived: float = 0.0
    scheduled: float = 0.0
    first_token: float = 0.0
    finished: float = 0.0
    cached_tokens: int = 0
    preemptions: int = 0

    @property
    def time_to_first_token(self) -> float:
        """Seconds from arrival to the first token."""
        return self.first_token - self.arrived if self.first_token else 0.0


@dataclass(slots=True)
class Update:
    """News of one answer: the tokens since the last update, and on the last one how it ended.

    Attributes:
        logprobs: log-probability of each token under the target's raw distribution.
        top_logprobs: most likely tokens of each position, where the request wants them.
        finish: None while the answer goes on.
        error: with finish "error": why.
        drafts, timing: with `finish`: the whole answer's figures.
    """

    token_ids: list[int]
    logprobs: list[float]
    finish: FinishReason | None = None
    error: HspecError | None = None
    drafts: DraftStats | None = None
    timing: Timing | None = None
    top_logprobs: Sequence_[TopTokens] = ()


Sink = Callable[[Update], None]


@dataclass(eq=False)
class Sequence:
    """One answer.

    Attributes:
        tokens: int32, prompt and what was emitted; up to date only while it has no slot.
        sink: gets the updates; the last one exactly once.
        streaming: whether updates come step by step or only at the end.
        told: output tokens that the sink has seen.
        emitted_at: when a step last gave it tokens, seconds of a monotonic clock; 0 before the first.
    """

    number: int
    tokens: NDArray[np.int32]
    prompt_len: int
    end_len: int
    params: SamplingParams
    seed: int
    rules: StopRules
    sink: Sink
    streaming: bool
    text: TextStream | None = None
    lookup: HostDrafts | None = None
    uses_drafter: bool = True
    shaper: Shaper = field(default_factory=Shaper)
    priority: int = 0
    logprobs: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    slot: int = NO_SLOT
    told: int = 0
    finish: FinishReason | None = None
    chain: PrefixChain = field(default_factory=PrefixChain)
    drafts: DraftStats = field(default_factory=DraftStats)
    arrived: float = field(default_factory=time.monotonic)
    scheduled: float = 0.0
    first_token: float = 0.0
    emitted_at: float = 0.0
    cached_tokens: int = 0
    preemptions: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """Place in the queue: the smallest goes first."""
        return self.number - self.priority * PRIORITY_STEP, self.number

    def timing(self) -> Timing:
        """The figures of an answer that ends now."""
        now = time.monotonic()
        return Timing(self.arrived, self.scheduled, self.first_token, now, self.cached_tokens, self.preemptions)
