# SPDX-License-Identifier: Apache-2.0
"""Runs requests through an `EngineCore` over a scripted session and collects what their sinks were told."""

from __future__ import annotations

from dataclasses import dataclass, field

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.detokenizer import Codec
from hspec_trt.runtime.guided import GuideMaker
from hspec_trt.runtime.lookup import HostDrafts
from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.request import Sequence, Update
from hspec_trt.runtime.shaper import TopTokens
from tests.support.scripted import Accept, Row, ScriptedSession, TextModel, make_limits


@dataclass
class Answer:
    """A request and what came of it."""

    prompt: list[int]
    params: SamplingParams
    updates: list[Update] = field(default_factory=list)
    sequence: Sequence | None = None

    @property
    def ids(self) -> list[int]:
        return [token for update in self.updates for token in update.token_ids]

    @property
    def logprobs(self) -> list[float]:
        return [value for update in self.updates for value in update.logprobs]

    @property
    def tops(self) -> list[TopTokens]:
        return [top for update in self.updates for top in update.top_logprobs]

    @property
    def last(self) -> Update:
        """The last update; exactly one ends the answer."""
        assert [update.finish is not None for update in self.updates].count(True) == 1
        assert self.updates[-1].finish is not None
        return self.updates[-1]


def make_core(
    *,
    accept: Accept = lambda seed, position: 0,
    model: TextModel | None = None,
    num_pages: int = 200,
    eos_ids: frozenset[int] = frozenset(),
    decoder: Codec | None = None,
    options: SchedulerOptions | None = None,
    nan_token: int | None = None,
    fail_at: frozenset[int] = frozenset(),
    guides: GuideMaker | None = None,
    **limits: object,
) -> EngineCore:
    made = make_limits(**limits)
    session = ScriptedSession(model or TextModel(made.vocab_size), made, accept, nan_token, fail_at)
    session.allocate(num_pages)
    return EngineCore(session, eos_ids=eos_ids, decoder=decoder, guides=guides, options=options)


def submit(
    core: EngineCore,
    prompt: list[int],
    params: SamplingParams,
    *,
    priority: int = 0,
    streaming: bool = True,
    host_drafts: HostDrafts | None = None,
) -> Answer:
    answer = Answer(prompt, params)
    answer.sequence = core.make(
        prompt, params, answer.updates.append, streaming=streaming, priority=priority, host_drafts=host_drafts
    )
    core.add(answer.sequence)
    return answer


def drain(core: EngineCore, limit: int = 10_000) -> int:
    """Run to the end; returns the number of steps."""
    steps = 0
    while not core.is_idle:
        core.step()
        steps += 1
        assert steps < limit, "the loop does not end"
    return steps


def solo(answer: Answer, model: TextModel, count: int) -> list[int]:
    """REF: what the answer must be, without an end token."""
    params = answer.params
    row = Row(params.temperature, params.top_p, params.min_p, params.top_k, params.seed or 0)
    return model.generate(answer.prompt, count, row)[0]


def check_empty(core: EngineCore) -> None:
    """Nothing is left behind: slots, pages, line."""
    scheduler = core.scheduler
    assert core.is_idle
    assert scheduler.allocator.in_use == 0
    assert all(seq is None for seq in scheduler.table.sequences)
    assert not scheduler.table.pages.any()
    assert not scheduler.waiting()
