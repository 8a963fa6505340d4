# SPDX-License-Identifier: Apache-2.0
"""Losslessness on the CPU rests on this: a row's logits have the same bits whatever the step's sizes and its company.

The rule that a session must keep for it (`hspec_trt.graph`): N, T and K of at least 2, and keys in whole blocks of 64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from hspec_trt.config.build import BuildConfig
from tests.support.graph_engine import Engine, Feed, Row, write_engine
from tests.support.tiny_models import TinyTarget
from tests.support.tiny_pair import tiny_pair

KEY_BLOCK = 64
SHAPES = {
    "grouped": TinyTarget(num_layers=2),
    "one head each": TinyTarget(num_layers=2, num_heads=4, num_kv_heads=4),
    "odd sizes": TinyTarget(
        num_layers=2, hidden_size=72, head_dim=18, intermediate_size=100, num_kv_heads=1, vocab_size=101
    ),
    "wide": TinyTarget(
        family="qwen3",
        num_layers=1,
        hidden_size=320,
        head_dim=64,
        intermediate_size=900,
        num_heads=5,
        num_kv_heads=5,
        vocab_size=999,
        max_position=768,
        std=0.05,
    ),
}
LENGTHS = (1, 2, 9, 17, 64, 65, 130, 200)
LONG = (300, 520, 700)
COMPANY: tuple[tuple[tuple[int, int], ...], ...] = (((5, 1),), ((0, 64),), ((3, 8), (120, 8)))


class Probe:
    """Computes the logits of the last token of a text's prefix in steps of any make."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.page_size = engine, engine.build.page_size
        length = engine.pair.target.max_position
        self.per_row = length // self.page_size + 1
        self.text = np.random.default_rng(1).integers(0, engine.pair.target.vocab_size, length).tolist()

    def row(self, index: int, context: int, length: int) -> tuple[Row, Feed]:
        first = 1 + index * self.per_row
        tokens = self.text[context : context + length]
        return Row(tokens, list(range(first, first + self.per_row)), context=context), Feed(tokens, num_verify=1)

    def logits(self, context: int, length: int, verify: int = 1, company: Sequence[tuple[int, int]] = ()) -> np.ndarray:
        rows = [self.row(0, context, length), *(self.row(i + 1, *other) for i, other in enumerate(company))]
        first = Feed(rows[0][1].tokens, num_verify=verify)
        longest = max(row.context + len(feed.tokens) for row, feed in rows)
        pages = -(-longest // KEY_BLOCK) * KEY_BLOCK // self.page_size
        out = self.engine.step(
            [row for row, _ in rows],
            [first, *(feed for _, feed in rows[1:])],
            pad={"N": 2, "T": 2, "K": 2, "M": pages},
        )
        return out["probe.target.logits"][verify - 1]

    def in_chunks(self, sizes: Sequence[int]) -> np.ndarray:
        context = 0
        for size in sizes:
            logits = self.logits(context, size)
            context += size
        return logits


def cuts(length: int) -> Iterator[list[int]]:
    """Ways to run a prefix: token by token at the end, halves, chunks of 7."""
    for last in (1, 2, 8):
        if length > last:
            yield [length - last, last]
    if length > 1:
        yield [length // 2, length - length // 2]
    if length > 7:
        yield [7] * (length // 7) + ([length % 7] if length % 7 else [])


@pytest.mark.parametrize(
    ("page_size", "prepack", "threads"), [(16, True, 1), (16, False, 2), (64, True, 2), (64, False, 1)]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_have_the_same_bits(
    shape: str, page_size: int, prepack: bool, threads: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Case C2, for widths 1 to 8 and any company."""
    target = SHAPES[shape]
    folder = tmp_path_factory.mktemp("bits")
    pair, build = tiny_pair(folder / "target", target), BuildConfig(page_size=page_size, num_drafts=7)
    graph = write_engine(folder / "engine", pair, build, probes=True)
    num_pages = 3 * (target.max_position // page_size + 1) + 1
    probe = Probe(Engine(graph, pair, build, num_pages=num_pages, prepack=prepack, threads=threads))
    for length in LENGTHS + (LONG if target.max_position > 700 else ()):
        whole = probe.in_chunks([length])
        for sizes in cuts(length):
            assert (probe.in_chunks(sizes) == whole).all(), f"length {length} in chunks of {sizes[:3]}.."
        for company in COMPANY:
            assert (probe.logits(length - 1, 1, company=company) == whole).all(), f"length {length} with {company}"
        for verify in (2, 4, 8):
            if length >= verify:
                logits = probe.logits(length - verify, verify, verify)
                assert (logits == whole).all(), f"length {length}, {verify} rows of logits"
