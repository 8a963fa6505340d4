# SPDX-License-Identifier: Apache-2.0
"""Every quantity of every H-Spec golden case through the fused graph."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.golden_pair import HSPEC_CASES, golden_vectors
from tests.support.graph_engine import Engine, Feed, Row
from tests.support.tolerance import assert_golden

from .conftest import PAGE_SIZE, GoldenEngine

PROMPTS = (0, 1, 2)
# First probe to a part of the golden tensor: the graph does not compute logits of slot 0, which are never used.
SLOTS = {"logits_base": 1, "logits_final": 1}


def run_prompt(engine: Engine, vectors: dict[str, np.ndarray], prompt: int) -> tuple[Row, dict[str, np.ndarray]]:
    tokens = [int(token) for token in vectors[f"p{prompt}.prompt_ids"]]
    row = Row(tokens, pages=[31, 7, 19, 3])
    return row, engine.step([row], [Feed(tokens, num_verify=1, draft=True)])


@pytest.fixture(params=HSPEC_CASES, scope="module")
def case(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def engine(case: str, golden_engine: GoldenEngine) -> Engine:
    return golden_engine(case, probes=True)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_target_states_match(case: str, engine: Engine, prompt: int) -> None:
    vectors = golden_vectors(case)
    row, out = run_prompt(engine, vectors, prompt)
    wanted = [name for name in vectors if name.startswith(f"p{prompt}.target.hidden.")]
    assert wanted
    for name in wanted:
        assert_golden(out[f"probe.{name.split('.', 1)[1]}"], vectors[name], name)
    assert_golden(out["probe.target.logits"][0], vectors[f"p{prompt}.target.last_logits"], "logits")
    for layer in range(engine.pair.target.num_layers):
        for part, kind in enumerate("kv"):
            name = f"p{prompt}.target.{kind}.{layer}"
            if name in vectors:
                assert_golden(paged(engine, row, layer, part), vectors[name], name)


def paged(engine: Engine, row: Row, layer: int, part: int) -> np.ndarray:
    """K (0) or V (1) of a row as [kv_heads, tokens, d], read back from its pages."""
    pages = engine.page_values(layer)[row.pages, part]
    joined = np.concatenate(list(pages), axis=1)
    assert joined.shape[1] == len(row.pages) * PAGE_SIZE
    return joined[:, : len(row.prompt)]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_draft_pass_matches(case: str, engine: Engine, prompt: int) -> None:
    vectors = golden_vectors(case)
    check_draft_pass(engine, vectors, prompt, "")


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("case", [case for case in HSPEC_CASES if "p2.trainwin.hidden" in golden_vectors(case)])
def test_draft_pass_matches_with_the_window_of_training(case: str, golden_engine: GoldenEngine, prompt: int) -> None:
    engine = golden_engine(case, probes=True, draft_window="training")
    check_draft_pass(engine, golden_vectors(case), prompt, "trainwin.")


def check_draft_pass(engine: Engine, vectors: dict[str, np.ndarray], prompt: int, rule: str) -> None:
    """Compare a draft pass with the quantities of a window rule; what no window touches has no prefix."""
    _, out = run_prompt(engine, vectors, prompt)
    assert out["emitted_ids"][0, 0] == vectors[f"p{prompt}.anchor_id"][0]
    assert out["emitted_lens"].tolist() == [1]
    compared = 0
    for name, value in out.items():
        if not name.startswith("probe.drafter."):
            continue
        quantity = name.removeprefix("probe.drafter.")
        key = f"p{prompt}.{rule}{quantity}"
        want = vectors[key if key in vectors else f"p{prompt}.{quantity}"][SLOTS.get(quantity, 0) :]
        assert_golden(value.reshape(want.shape), want, quantity)
        compared += 1
    sub_layers = len(engine.pair.drafter.block_pattern)
    assert compared >= sub_layers + 3
    assert out["draft_ids"][0].tolist() == vectors[f"p{prompt}.{rule}draft_tokens"].tolist()
