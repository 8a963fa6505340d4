# SPDX-License-Identifier: Apache-2.0
"""Verification on a target whose text is known: every accepted length, mixed rows, padding, non-finite rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hspec_trt.config.build import BuildConfig
from tests.support.graph_engine import Engine, Feed, Pair, Row, write_engine
from tests.support.tiny_models import one_cycle, t_bigram
from tests.support.tiny_pair import tiny_pair
from tests.support.tolerance import assert_close

NUM_DRAFTS = 4
NEXT = one_cycle(61)


def following(token: int, count: int) -> list[int]:
    """The target's text after a token."""
    text = []
    for _ in range(count):
        token = NEXT[token]
        text.append(token)
    return text


def drafts_with(token: int, right: int, count: int = NUM_DRAFTS) -> list[int]:
    """`count` drafts after a token, of which the first `right` are the target's and the next one is not."""
    text = following(token, count)
    if right < count:
        text[right] = (text[right] + 1) % 61
    return text


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Pair]:
    folder = tmp_path_factory.mktemp("bigram")
    pair = tiny_pair(folder / "target", *t_bigram())
    build = BuildConfig(page_size=16, num_drafts=NUM_DRAFTS)
    return write_engine(folder / "engine", pair, build, probes=True), pair


@pytest.fixture
def engine(graph: tuple[Path, Pair]) -> Engine:
    return Engine(*graph, BuildConfig(page_size=16, num_drafts=NUM_DRAFTS), num_pages=12)


def verify_row(page: int, token: int, drafts: list[int]) -> tuple[Row, Feed]:
    return Row([token, *drafts], pages=[page]), Feed([token, *drafts], num_verify=1 + len(drafts))


@pytest.mark.parametrize("count", range(NUM_DRAFTS + 1))
@pytest.mark.parametrize("right", range(NUM_DRAFTS + 1))
def test_every_accepted_length(right: int, count: int, engine: Engine) -> None:
    if right > count:
        right, count = count, right
    row, feed = verify_row(1, 7, drafts_with(7, right, count))
    out = engine.step([row], [feed])
    assert out["emitted_lens"].tolist() == [right + 1]
    assert out["emitted_ids"][0].tolist() == following(7, right + 1) + [-1] * (NUM_DRAFTS - right)
    logits = out["probe.target.logits"][: right + 1, :61]
    shifted = logits - logits.max(axis=1, keepdims=True)
    logprobs = shifted.max(axis=1) - np.log(np.exp(shifted).sum(axis=1))
    assert_close(out["emitted_logprobs"][0, : right + 1], logprobs)
    assert (out["emitted_logprobs"][0, right + 1 :] == 0).all()


def test_a_right_draft_after_a_wrong_one_does_not_count(engine: Engine) -> None:
    drafts = following(7, 4)
    drafts[1] = (drafts[1] + 1) % 61
    drafts[2] = NEXT[drafts[1]]  # right after the wrong one
    row, feed = verify_row(1, 7, drafts)
    out = engine.step([row], [feed])
    assert out["emitted_ids"][0].tolist() == [*following(7, 2), -1, -1, -1]


@pytest.mark.parametrize("pad", [{}, {"N": 40, "T": 12, "K": 30, "M": 4}], ids=["tight", "padded"])
def test_rows_of_all_kinds_in_one_step(pad: dict[str, int], engine: Engine) -> None:
    first = verify_row(1, 3, drafts_with(3, 2))
    # Two right drafts, and the next row begins with the token that would come third: it must not be taken for a draft.
    second = verify_row(2, 9, following(9, 2))
    third = verify_row(3, following(9, 3)[-1], [])
    chunk = Row(list(range(20, 30)), pages=[4]), Feed(list(range(20, 30)))
    idle = Row([1], pages=[]), Feed([])
    last = verify_row(5, 50, drafts_with(50, 4))
    rows, feeds = zip(first, second, third, chunk, idle, last, strict=True)
    out = engine.step(rows, feeds, pad=pad)
    assert out["emitted_lens"].tolist() == [3, 3, 1, 0, 0, 5]
    want = [following(3, 3), following(9, 3), following(9, 4)[-1:], [], [], following(50, 5)]
    for emitted, text in zip(out["emitted_ids"].tolist(), want, strict=True):
        assert emitted == text + [-1] * (NUM_DRAFTS + 1 - len(text))
    assert out["finite"].all()
    assert out["draft_ids"].shape == (0, NUM_DRAFTS)


def test_a_row_that_is_not_finite_fails_alone(engine: Engine) -> None:
    pages = engine.page_values(0).copy()
    pages[1] = np.nan
    engine.pages[0].update_inplace(pages)
    bad = Row([4] * 20, pages=[1, 2], context=3), Feed([4] * 5, num_verify=5)
    good = verify_row(3, 9, following(9, 4))
    rows, feeds = zip(bad, good, (Row([1], pages=[]), Feed([])), strict=True)
    out = engine.step(rows, feeds)
    assert out["finite"].tolist() == [False, True, True]
    assert 1 <= out["emitted_lens"][0] <= NUM_DRAFTS + 1
    emitted = out["emitted_ids"][0, : out["emitted_lens"][0]]
    assert ((emitted >= 0) & (emitted < 61)).all()
    assert out["emitted_ids"][1].tolist() == following(9, 5)


def test_an_engine_without_drafts(graph: tuple[Path, Pair], tmp_path: Path) -> None:
    _, pair = graph
    build = BuildConfig(page_size=16)
    plain = Engine(write_engine(tmp_path, pair, build), pair, build, num_pages=4)
    row, feed = verify_row(1, 7, [])
    out = plain.step([row], [feed])
    assert out["emitted_ids"].tolist() == [following(7, 1)]
    assert out["emitted_lens"].tolist() == [1]
    assert out["draft_ids"].shape == (0, 0)
