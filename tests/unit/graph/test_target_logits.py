# SPDX-License-Identifier: Apache-2.0
"""Logits of the target part equal transformers' in float32: families, rope types, heads, biases, windows, padding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from hspec_trt.config.build import BuildConfig
from tests.support.graph_engine import Engine, Feed, Row, write_engine
from tests.support.tiny_models import ROPES, TinyTarget, random_weights
from tests.support.tiny_pair import tiny_pair
from tests.support.tolerance import assert_close

TARGETS = {
    **{f"llama {rope}": TinyTarget(rope=ROPES[rope], std=0.1) for rope in ROPES},
    **{f"qwen3 {rope}": TinyTarget(family="qwen3", rope=ROPES[rope], std=0.1) for rope in ROPES},
    "tied": TinyTarget(tied=True, std=0.1),
    "biases": TinyTarget(attention_bias=True, mlp_bias=True, std=0.1),
    "qwen3 biases": TinyTarget(family="qwen3", attention_bias=True, tied=True, std=0.1),
    "windows": TinyTarget(family="qwen3", window=8, first_window_layer=2, std=0.1),
    "all windows": TinyTarget(family="qwen3", window=8, std=0.1),
    "one head each": TinyTarget(num_kv_heads=4, std=0.1),
    "one K/V head": TinyTarget(num_kv_heads=1, std=0.1),
    "wide heads": TinyTarget(family="qwen3", head_dim=48, std=0.1),
}
LENGTH = 150  # past the 64 positions at which the scaled rope types were trained


def reference_logits(folder: Path, tokens: list[int]) -> np.ndarray:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy()


@pytest.mark.parametrize("name", TARGETS)
def test_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    pair, build = tiny_pair(tmp_path / "target", target), BuildConfig(page_size=16)
    engine = Engine(write_engine(tmp_path / "engine", pair, build, probes=True), pair, build, num_pages=12)
    tokens = np.random.default_rng(0).integers(0, target.vocab_size, LENGTH).tolist()
    want = reference_logits(tmp_path / "target", tokens)
    row = Row(tokens, pages=list(range(11, 0, -1)))
    inputs_of_all = [Feed(tokens[:100], num_verify=1), Feed(tokens[100:], num_verify=1)]
    for feed in inputs_of_all:
        out = engine.step([row], [feed])
        row.context += len(feed.tokens)
        got = out["probe.target.logits"][0, : target.vocab_size]
        assert_close(got, want[row.context - 1], what=f"{name}, position {row.context - 1}")
        assert out["emitted_ids"][0, 0] == want[row.context - 1].argmax()


def test_rows_beyond_the_vocabulary_are_never_drawn(tmp_path: Path) -> None:
    target = TinyTarget(embedding_rows=64, std=0.1)
    weights = random_weights(target)
    weights["lm_head.weight"][61:] = 50.0 * np.sign(weights["lm_head.weight"][61:])
    pair, build = tiny_pair(tmp_path / "target", target, weights), BuildConfig(page_size=16)
    assert (pair.target.vocab_size, pair.target.embedding_rows) == (61, 64)
    engine = Engine(write_engine(tmp_path / "engine", pair, build), pair, build, num_pages=8)
    rows = [Row([1, 2, 3], pages=[1 + r], temperature=2.0, seed=r) for r in range(6)]
    drawn = []
    for _ in range(10):
        out = engine.step(rows, [Feed(row.prompt, num_verify=1) for row in rows])
        assert out["finite"].all()
        drawn += out["emitted_ids"][:, 0].tolist()
        for row in rows:
            row.seed += 1000
    assert max(drawn) < 61
    assert len(set(drawn)) > 10
