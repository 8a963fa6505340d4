# SPDX-License-Identifier: Apache-2.0
"""Counters of drafting and of the runtime. Pure figures: who counts and who prints them is elsewhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum

from hspec_trt.runtime.histogram import SECONDS, TOKENS, DraftsByLength, Histogram


class NoDrafts(IntEnum):
    """Why a decode row carried no draft."""

    OFF = 0
    POLICY = 1
    LENGTH = 2
    POSITION = 3
    NO_MATCH = 4
    BUDGET = 5
    PAGES = 6

    @property
    def label(self) -> str:
        """Name in metrics."""
        return self.name.lower()


@dataclass
class DraftStats:
    """What drafting did for one answer, or for all of them.

    Attributes:
        steps: decode steps, which start from a token that was said before; each emits at least one token.
        emitted: tokens that these steps emitted and that were kept.
        first_tokens: tokens of the steps that ended a prompt: the first of a text, and one after each preemption. As
            in vLLM and TensorRT-LLM they are no part of the accepted length.
        offered: per position 1..G, drafts that were verified.
        accepted: per position 1..G, drafts that were accepted and kept.
        lengths: accepted length of a step (emitted tokens, 1..G+1) to how many steps had it.
        without: reason to the number of steps whose row carried no draft.
    """

    steps: int = 0
    emitted: int = 0
    first_tokens: int = 0
    offered: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    lengths: Counter[int] = field(default_factory=Counter)
    without: Counter[str] = field(default_factory=Counter)

    @property
    def num_tokens(self) -> int:
        """Tokens of the text."""
        return self.first_tokens + self.emitted

    @property
    def drafted(self) -> int:
        """Drafts that were verified."""
        return sum(self.offered)

    @property
    def num_accepted(self) -> int:
        """Drafts that were accepted and kept."""
        return sum(self.accepted)

    @property
    def accepted_length(self) -> float:
        """Mean tokens of a decode step, the bonus token included (tau); 0 before the first one."""
        return self.emitted / self.steps if self.steps else 0.0

    @property
    def acceptance_by_position(self) -> list[float]:
        """Share of the drafts verified at each position that were accepted; a later one counts only if all before
        it were accepted, so the shares fall."""
        return [hit / seen if seen else 0.0 for hit, seen in zip(self.accepted, self.offered, strict=True)]

    def add(self, other: DraftStats) -> None:
        """Add another's figures to these."""
        self.steps += other.steps
        self.emitted += other.emitted
        self.first_tokens += other.first_tokens
        self.offered = _sum_lists(self.offered, other.offered)
        self.accepted = _sum_lists(self.accepted, other.accepted)
        self.lengths.update(other.lengths)
        self.without.update(other.without)


@dataclass
class RuntimeStats:
    """What the runtime did since it was loaded.

    Attributes:
        steps: steps run; `failed_steps` of them raised.
        step_seconds: time inside the session.
        prompt_tokens, new_tokens: tokens run of prompts (again after a preemption), tokens kept.
        cached_tokens: prompt tokens that the prefix cache saved.
        finished: finish reason to number of answers.
        drafts: drafting of the answers that ended.
        by_length: drafting of all steps, by the length of the text.
        step_tokens: tokens of a step.
        first_token: seconds from an answer's arrival to its first token.
        inter_token: seconds between two steps that gave an answer tokens.
    """

    steps: int = 0
    failed_steps: int = 0
    step_seconds: float = 0.0
    prompt_tokens: int = 0
    new_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    drafts: DraftStats = field(default_factory=DraftStats)
    by_length: DraftsByLength = field(default_factory=DraftsByLength)
    step_tokens: Histogram = field(default_factory=lambda: Histogram(TOKENS))
    first_token: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    inter_token: Histogram = field(default_factory=lambda: Histogram(SECONDS))


def _sum_lists(left: list[int], right: list[int]) -> list[int]:
    size = max(len(left), len(right))
    return [a + b for a, b in zip(left + [0] * (size - len(left)), right + [0] * (size - len(right)), strict=True)]
