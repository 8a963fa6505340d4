# SPDX-License-Identifier: Apache-2.0
"""Decode runs of the drafters that keep a cache: its content never depends on what was rejected, mixed or paused."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from hspec_trt.config.build import BuildConfig
from tests.support.golden_drafters import load_case, pair_of
from tests.support.graph_engine import Engine, Feed, Pair, Row, commit, next_feed, write_engine

NAMES = ["dflash_qwen3", "dflash_llama_full", "dspark_qwen3", "dspark_llama_rnn", "peagle_qwen3", "eagle3_llama"]
BUILD = BuildConfig(page_size=16)
NUM_PAGES = 96
Make = Callable[..., Engine]
golden_pair = cache(lambda name: pair_of(load_case(name)))


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    graphs: dict[tuple[str, bool], Path] = {}

    def engine(name: str, *, drafter: bool = True) -> Engine:
        pair: Pair = golden_pair(name) if drafter else golden_pair(name).without_drafter()
        build = BUILD if drafter else BuildConfig(page_size=16, num_drafts=golden_pair(name).drafter.num_drafts)
        if (name, drafter) not in graphs:
            graphs[name, drafter] = write_engine(tmp_path_factory.mktemp(name), pair, build)
        return Engine(graphs[name, drafter], pair, build, num_pages=NUM_PAGES)

    return engine


def rows_for(name: str, rng: random.Random, count: int = 3) -> list[Row]:
    free = list(range(1, NUM_PAGES))
    rng.shuffle(free)
    case = load_case(name)
    prompts = [[int(token) for token in case.get(f"p{index}", "prompt_ids")] for index in range(count)]
    return [Row(prompt, [free.pop() for _ in range(6)]) for prompt in prompts]


def drafts_of_text(engine: Engine, text: list[int]) -> list[int]:
    """Drafts after a text that is run in one piece on an empty cache."""
    row = Row(text[:-1], pages=list(range(1, 7)))
    out = engine.step([row], [Feed(row.prompt, num_verify=1, draft=True)])
    assert out["emitted_ids"][0, 0] == text[-1]
    return out["draft_ids"][0].tolist()


def steps_with(engine: Engine, rows: list[Row], feeds: list[Feed]) -> None:
    commit(rows, feeds, engine.step(rows, feeds))


@pytest.mark.parametrize("name", NAMES)
def test_drafts_depend_on_the_text_alone(name: str, make: Make) -> None:
    """Mixed rows, ragged and mostly rejected drafts, chunks, steps without drafting: drafts as from scratch."""
    engine, fresh, rng = make(name), make(name), random.Random(7)
    rows = rows_for(name, rng)
    checked = 0
    for step in range(12):
        feeds = []
        for index, row in enumerate(rows):
            wrong = [rng.randrange(200) for _ in range(rng.randint(0, engine.num_drafts))]
            right = row.drafts[: rng.randint(0, engine.num_drafts)]
            row.drafts = (right + wrong)[: engine.num_drafts]
            idle = step % 4 == index
            feeds.append(
                Feed(()) if idle else next_feed(row, chunk=5, draft=step % 3 != 1, num_drafts=engine.num_drafts)
            )
        steps_with(engine, rows, feeds)
        for row, feed in zip(rows, feeds, strict=True):
            if feed.draft:
                assert row.drafts == drafts_of_text(fresh, row.text)
                checked += 1
    assert checked > 8


@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_is_that_of_the_target_alone(name: str, make: Make) -> None:
    engine, plain, rng = make(name), make(name, drafter=False), random.Random(3)
    rows, alone = rows_for(name, rng), rows_for(name, rng)
    for row in alone:
        while len(row.tokens) < 20:
            steps_with(plain, [row], [next_feed(row, chunk=99, draft=False, num_drafts=0)])
    while any(len(row.tokens) < 20 for row in rows):
        feeds = [next_feed(row, chunk=9, draft=True, num_drafts=engine.num_drafts) for row in rows]
        steps_with(engine, rows, feeds)
    assert [row.tokens[:20] for row in rows] == [row.tokens[:20] for row in alone]


@pytest.mark.parametrize("name", NAMES)
def test_sampled_text_is_that_of_the_target_alone(name: str, make: Make) -> None:
    engine, plain, rng = make(name), make(name, drafter=False), random.Random(4)
    rows, alone = rows_for(name, rng, 2), rows_for(name, rng, 2)
    for group in (rows, alone):
        for seed, row in enumerate(group):
            row.temperature, row.top_p, row.seed = 0.9, 0.95, 11 + seed
    for row in alone:
        while len(row.tokens) < 15:
            steps_with(plain, [row], [next_feed(row, chunk=99, draft=False, num_drafts=0)])
    while any(len(row.tokens) < 15 for row in rows):
        feeds = [next_feed(row, chunk=9, draft=True, num_drafts=engine.num_drafts) for row in rows]
        steps_with(engine, rows, feeds)
    assert [row.tokens[:15] for row in rows] == [row.tokens[:15] for row in alone]


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_idle_rows_write_the_null_page_only(name: str, make: Make) -> None:
    engine = make(name)
    rows = [Row([1, 2], pages=[4]), Row([3], pages=[])]
    out = engine.step(rows, [Feed(()), Feed(())], pad={"N": 5, "K": 3})
    assert out["emitted_lens"].tolist() == [0, 0]
    for layer in range(engine.pair.drafter.num_cache_layers):
        assert not engine.page_values(layer, drafter=True)[1:].any()


@pytest.mark.parametrize("name", NAMES)
def test_padded_steps_draft_the_same(name: str, make: Make) -> None:
    """Case E7: padding is no part of any state."""
    tokens = [int(token) for token in load_case(name).get("p1", "prompt_ids")]
    drafts = []
    for pad in ({}, {"N": len(tokens) + 6, "K": 4, "T": len(tokens) + 3, "M": 5}):
        row = Row(tokens, pages=[9, 5, 2])
        drafts.append(make(name).step([row], [Feed(tokens, num_verify=1, draft=True)], pad=pad)["draft_ids"].tolist())
    assert drafts[0] == drafts[1]


@pytest.mark.parametrize("name", NAMES)
def test_cache_is_written_while_drafting_is_off(name: str, make: Make) -> None:
    """Drafting may be switched on for any row at any step."""
    engine, fresh = make(name), make(name)
    row = rows_for(name, random.Random(5), 1)[0]
    for _ in range(5):
        feed = next_feed(row, chunk=99, draft=False, num_drafts=0)
        out = engine.step([row], [feed])
        assert out["draft_ids"].shape == (0, engine.num_drafts)
        commit([row], [feed], out)
    steps_with(engine, [row], [next_feed(row, chunk=1, draft=True, num_drafts=0)])
    assert row.drafts == drafts_of_text(fresh, row.text)


@pytest.mark.parametrize("name", ["dflash_llama_full", "dspark_qwen3", "peagle_llama", "eagle3_qwen3"])
def test_fewer_drafts_are_the_first_ones(name: str, tmp_path: Path) -> None:
    pair = golden_pair(name)
    case = load_case(name)
    tokens = [int(token) for token in case.get("p1", "prompt_ids")]
    for count in (1, 2, 4):
        build = BuildConfig(page_size=16, num_drafts=count)
        engine = Engine(write_engine(tmp_path / str(count), pair, build), pair, build, num_pages=8)
        out = engine.step([Row(tokens, pages=[1, 2, 3])], [Feed(tokens, num_verify=1, draft=True)])
        assert out["draft_ids"][0].tolist() == case.get("p1", "draft_tokens")[:count].tolist()
