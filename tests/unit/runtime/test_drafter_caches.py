# SPDX-License-Identifier: Apache-2.0
"""Drafters with pages of their own under the scheduler: chunks, prefix hits and preemption change no draft."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hspec_trt.bundle import open_engine
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import RequestError
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.loading import load_session
from hspec_trt.runtime.options import RuntimeOptions, SchedulerOptions
from hspec_trt.runtime.session import Limits, Session, StepInputs, StepOutputs
from tests.support.engines import make_engine
from tests.support.golden_drafters import load_case, pair_of
from tests.unit.runtime.harness import Answer, drain, submit

NAMES = ["dflash_qwen3", "dspark_qwen3", "peagle_qwen3", "eagle3_qwen3"]
PAGE_SIZE = 16
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, drafts="on")
Drafted = dict[tuple[int, ...], list[int]]
golden_pair = cache(lambda name: pair_of(load_case(name)))


class Recorder:
    """A session that notes the drafts after each text, by the text that the pages hold and the anchor."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.texts: dict[int, list[int]] = {}
        self.drafted: Drafted = {}

    @property
    def limits(self) -> Limits:
        return self.session.limits

    @property
    def num_pages(self) -> int:
        return self.session.num_pages

    def allocate(self, num_pages: int) -> None:
        self.session.allocate(num_pages)

    def scrub(self, pages: np.ndarray) -> None:
        self.session.scrub(pages)

    def step(self, inputs: StepInputs) -> StepOutputs:
        outputs = self.session.step(inputs)
        for line, row in enumerate(inputs.draft_rows.tolist()):
            begin, end = inputs.cu_query_lens[row : row + 2]
            kept = int(end - begin - np.diff(inputs.cu_verify_lens)[row] + outputs.emitted_lens[row])
            key = (
                int(inputs.context_lens[row]) + kept,
                *outputs.emitted_ids[row, : outputs.emitted_lens[row]].tolist(),
            )
            self.drafted[key] = outputs.draft_ids[line].tolist()
        return outputs


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("engines")
    return cache(lambda name: make_engine(root / name, golden_pair(name)))


def core_of(folder: Path, *, num_pages: int = 64, **options: int | bool) -> tuple[EngineCore, Recorder]:
    session = load_session(open_engine(folder), RuntimeOptions(num_threads=1, kv_cache_memory=1 << 22)).session
    session.allocate(num_pages)
    recorder = Recorder(session)
    return EngineCore(recorder, options=SchedulerOptions(**options)), recorder  # type: ignore[arg-type]


def prompt_of(name: str, number: int = 2) -> list[int]:
    return [int(token) for token in load_case(name).get(f"p{number}", "prompt_ids")]


def run(core: EngineCore, *prompts: list[int], params: SamplingParams = GREEDY) -> list[list[int]]:
    answers: list[Answer] = [submit(core, prompt, params) for prompt in prompts]
    drain(core)
    return [answer.ids for answer in answers]


@pytest.mark.parametrize("name", NAMES)
def test_drafts_are_those_of_an_unbroken_run(name: str, folders: Callable[[str], Path]) -> None:
    """Small chunks beside another request, and a pool so small that requests are thrown out and start again."""
    whole, plain = core_of(folders(name), prefix_cache=False)
    text = run(whole, prompt_of(name))
    cut, chunked = core_of(folders(name), prefix_cache=False, max_chunk=5)
    tight, preempted = core_of(folders(name), num_pages=7, prefix_cache=False)
    assert run(cut, prompt_of(name)) == text
    assert run(tight, prompt_of(name), prompt_of(name, 1))[:1] == text
    assert tight.scheduler.preemptions
    assert plain.drafted
    for other in (chunked, preempted):
        shared = plain.drafted.keys() & other.drafted.keys()
        assert len(shared) > 5
        assert all(plain.drafted[key] == other.drafted[key] for key in shared)


@pytest.mark.parametrize("name", NAMES)
def test_prefix_hits_draft_like_cold_runs(name: str, folders: Callable[[str], Path]) -> None:
    """Two texts with one start that part exactly at, just before and just after a page's end."""
    base = prompt_of(name)
    assert len(base) >= 2 * PAGE_SIZE + 2
    for part in (2 * PAGE_SIZE - 1, 2 * PAGE_SIZE, 2 * PAGE_SIZE + 1):
        other = [*base[:part], *((token + 1) % 200 for token in base[part:])]
        warm, hits = core_of(folders(name))
        run(warm, base)
        hits.drafted.clear()
        text = run(warm, other)
        expected = PAGE_SIZE * ((part - warm.session.limits.cache_lookahead) // PAGE_SIZE)
        assert warm.scheduler.cache.hit_tokens == expected
        cold, fresh = core_of(folders(name), prefix_cache=False)
        assert run(cold, other) == text
        assert hits.drafted == fresh.drafted


def test_lookahead_is_only_for_those_who_need_it(folders: Callable[[str], Path]) -> None:
    found = {name: core_of(folders(name))[0].session.limits.cache_lookahead for name in NAMES}
    assert found == {"dflash_qwen3": 0, "dspark_qwen3": 0, "peagle_qwen3": 1, "eagle3_qwen3": 1}


def test_an_engine_that_takes_next_ids_refuses_a_step_without(folders: Callable[[str], Path]) -> None:
    core, recorder = core_of(folders("eagle3_qwen3"))
    ones, no = np.ones(1, np.float32), np.zeros(0, np.int32)
    zeros = np.zeros(1, np.int32)
    inputs = StepInputs(
        input_ids=zeros,
        cu_query_lens=np.array([0, 1], np.int32),
        context_lens=zeros,
        query_slots=zeros[None],
        verify_rows=zeros,
        cu_verify_lens=np.array([0, 1], np.int32),
        draft_rows=no,
        page_table=np.ones((1, 1), np.int32),
        temperature=ones,
        top_p=ones,
        min_p=ones * 0,
        top_k=zeros,
        seed=np.zeros(1, np.int64),
    )
    with pytest.raises(RequestError) as raised:
        recorder.step(inputs)
    assert raised.value.code == "R310"
    assert core.is_idle


def test_pages_of_drafter_and_target_are_counted_together(folders: Callable[[str], Path]) -> None:
    core, _ = core_of(folders("dflash_qwen3"))
    target = 2 * 2 * 16 * 4 * PAGE_SIZE  # K and V, heads, head size, float32, tokens
    layers = golden_pair("dflash_qwen3").target.num_layers + 3
    assert core.session.limits.page_bytes == layers * target
