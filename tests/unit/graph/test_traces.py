# SPDX-License-Identifier: Apache-2.0
"""Whole decode runs of the golden traces: tokens, accepted counts and drafts, however the steps are cut and mixed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.golden_pair import golden_trace, golden_vectors
from tests.support.graph_engine import Engine, Feed, Row, commit, next_feed

from .conftest import PAGE_SIZE, GoldenEngine

TRACED = ("hspec_qwen3", "hspec_llama")
NUM_PAGES = 64
IDLE = Feed(())


def make_rows(case: str, rng: random.Random) -> tuple[list[Row], list[dict]]:
    """One row for each traced prompt, on shuffled pages."""
    vectors, traces = golden_vectors(case), golden_trace(case)
    free = list(range(1, NUM_PAGES))
    rng.shuffle(free)
    per_row = 128 // PAGE_SIZE
    rows = [
        Row([int(token) for token in vectors[f"p{trace['prompt']}.prompt_ids"]], [free.pop() for _ in range(per_row)])
        for trace in traces
    ]
    return rows, traces


def decode(
    engine: Engine,
    rows: list[Row],
    goals: list[int],
    *,
    chunk: int = 1000,
    num_drafts: Callable[[], int] = lambda: 7,
    start_step: Callable[[int], int] = lambda row: 0,
) -> list[list[int]]:
    """Run all rows to their goals; returns the emitted counts of each row's verify steps."""
    counts: list[list[int]] = [[] for _ in rows]
    for step in range(400):
        feeds = [
            IDLE
            if len(row.tokens) >= goal or step < start_step(index)
            else next_feed(row, chunk=chunk, draft=True, num_drafts=num_drafts())
            for index, (row, goal) in enumerate(zip(rows, goals, strict=True))
        ]
        if all(len(row.tokens) >= goal for row, goal in zip(rows, goals, strict=True)):
            return counts
        out = engine.step(rows, feeds)
        for index, feed in enumerate(feeds):
            assert bool(out["emitted_lens"][index]) == bool(feed.num_verify)
            if len(rows[index].tokens) and feed.num_verify:
                counts[index].append(int(out["emitted_lens"][index]))
        commit(rows, feeds, out)
    raise AssertionError("the rows did not reach their goals")


def check(rows: list[Row], traces: list[dict]) -> None:
    for row, trace in zip(rows, traces, strict=True):
        assert row.tokens[: trace["new_tokens"]] == trace["plain_greedy"]


@pytest.mark.parametrize("chunk", [1000, 7, 1])
@pytest.mark.parametrize("case", TRACED)
def test_trace_alone(case: str, chunk: int, golden_engine: GoldenEngine) -> None:
    engine = golden_engine(case, num_pages=NUM_PAGES)
    rows, traces = make_rows(case, random.Random(1))
    for row, trace in zip(rows, traces, strict=True):
        counts = decode(engine, [row], [trace["new_tokens"]], chunk=chunk)
        accepted = [step["accepted"] + 1 for step in trace["steps"]]
        # The trace's last step is cut at its number of tokens; ours runs it whole.
        assert counts[0][: len(accepted) - 1] == accepted[:-1]
    check(rows, traces)


@pytest.mark.parametrize("case", TRACED)
def test_each_step_carries_the_traced_drafts(case: str, golden_engine: GoldenEngine) -> None:
    engine = golden_engine(case, num_pages=NUM_PAGES)
    rows, traces = make_rows(case, random.Random(2))
    for row, trace in zip(rows, traces, strict=True):
        commit([row], [feed := next_feed(row, chunk=1000, draft=True, num_drafts=7)], engine.step([row], [feed]))
        for step in trace["steps"]:
            feed = next_feed(row, chunk=1, draft=True, num_drafts=7)
            assert row.context == step["anchor_pos"]
            assert list(feed.tokens)[: len(step["verify_row"])] == step["verify_row"]
            commit([row], [feed], engine.step([row], [feed]))


@pytest.mark.parametrize("case", TRACED)
def test_staggered_rows_with_ragged_drafts_and_an_idle_row(case: str, golden_engine: GoldenEngine) -> None:
    engine = golden_engine(case, num_pages=NUM_PAGES)
    rng = random.Random(3)
    rows, traces = make_rows(case, rng)
    more, more_traces = make_rows(case, rng)
    free = [page for page in range(1, NUM_PAGES) if all(page not in row.pages for row in rows)]
    for row in more:
        row.pages = [free.pop() for _ in row.pages]
    rows, traces = rows + more, traces + more_traces
    goals = [trace["new_tokens"] for trace in traces]
    idle = Row([5], pages=[])
    decode(
        engine,
        [*rows, idle],
        [*goals, 0],
        chunk=7,
        num_drafts=lambda: rng.randint(0, 7),
        start_step=lambda row: 3 * row,
    )
    check(rows, traces)


@pytest.mark.parametrize("case", TRACED)
def test_target_only_engine_verifies_drafts_that_rows_carry(case: str, golden_engine: GoldenEngine) -> None:
    engine = golden_engine(case, drafter=False, num_pages=NUM_PAGES)
    rows, traces = make_rows(case, random.Random(4))
    rng = random.Random(5)
    for row, trace in zip(rows, traces, strict=True):
        goal = trace["new_tokens"]
        feed = next_feed(row, chunk=1000, draft=False, num_drafts=0)
        out = engine.step([row], [feed])
        assert out["draft_ids"].shape == (0, 7)
        commit([row], [feed], out)
        while len(row.tokens) < goal:
            right = rng.randint(0, 7)
            drafts = trace["plain_greedy"][len(row.tokens) :][:right]
            row.drafts = [*drafts, (drafts or [0])[-1] ^ 1][:7]
            feed = next_feed(row, chunk=1, draft=False, num_drafts=7)
            out = engine.step([row], [feed])
            assert out["emitted_lens"][0] >= len(drafts) + (len(drafts) < 7)
            commit([row], [feed], out)
    check(rows, traces)


def test_all_rows_idle(golden_engine: GoldenEngine) -> None:
    engine = golden_engine("hspec_qwen3", num_pages=NUM_PAGES)
    rows = [Row([1, 2], pages=[4]), Row([3], pages=[])]
    before = [engine.page_values(layer).copy() for layer in range(engine.pair.target.num_layers)]
    out = engine.step(rows, [IDLE, IDLE])
    assert out["emitted_lens"].tolist() == [0, 0]
    assert (out["emitted_ids"] == -1).all()
    assert out["finite"].all()
    for layer, pages in enumerate(before):
        assert (engine.page_values(layer)[1:] == pages[1:]).all(), "padding may write the null page only"


def test_a_step_that_drafts_for_no_row(golden_engine: GoldenEngine) -> None:
    engine = golden_engine("hspec_qwen3", num_pages=NUM_PAGES)
    rows, traces = make_rows("hspec_qwen3", random.Random(6))
    row, trace = rows[0], traces[0]
    while len(row.tokens) < trace["new_tokens"]:
        feed = next_feed(row, chunk=1000, draft=False, num_drafts=0)
        out = engine.step([row], [feed])
        assert out["draft_ids"].shape == (0, 7)
        commit([row], [feed], out)
    assert row.tokens == trace["plain_greedy"]
