# SPDX-License-Identifier: Apache-2.0
"""Every draft is drawn from the drafter's own logits with its row's options and the noise of its own position.

A wrong row, slot or id here would change no text, only how many drafts are accepted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hspec_trt.config.build import BuildConfig
from tests.support.golden_drafters import load_case, pair_of
from tests.support.graph_engine import Engine, Feed, Pair, Row, write_engine
from tests.support.sampling_reference import allowed, gumbel

BUILD = BuildConfig(page_size=16)
CASES = ["hspec_qwen3", "hspec_llama", "dflash_qwen3", "dspark_qwen3", "dspark_llama_rnn"]
CASES += ["dspark_infill_gated", "peagle_qwen3", "eagle3_qwen3"]
CLOSE = 1e-3
"""Two tokens whose noisy scores lie this near to each other may change places by rounding."""


def target_ids(pair: Pair) -> np.ndarray:
    """Target id of each draft id."""
    assert pair.drafter is not None and pair.drafter_tensors is not None
    ids = np.arange(pair.drafter.draft_vocab_size)
    return ids + pair.drafter_tensors["d2t"].read() if "d2t" in pair.drafter_tensors else ids


def drawn(logits: np.ndarray, row: Row, position: int, ids: np.ndarray) -> set[int]:
    """The target id that logits ``[Vd]`` give at a position; more than one in a near tie."""
    if row.temperature == 0.0:
        scores = logits
    else:
        z = (logits - logits.max()) / row.temperature
        scores = np.where(allowed(z, row.top_k, row.top_p, row.min_p), z + gumbel(row.seed, position, ids), -np.inf)
    return set(ids[scores >= scores.max() - CLOSE].tolist())


@pytest.mark.parametrize("case", CASES)
def test_drafts_are_drawn_with_their_rows_own_options(case: str, tmp_path: Path) -> None:
    pair = pair_of(load_case(case))
    engine = Engine(write_engine(tmp_path, pair, BUILD, probes=True), pair, BUILD, num_pages=64)
    prompts = [[5, 9, 2], [7, 1, 8, 8, 3], [4, 4], [11, 2, 6, 30, 17, 9]]
    options = ({}, {"temperature": 1.3}, {"temperature": 0.8, "top_p": 0.9}, {"temperature": 2.0, "top_k": 12})
    rows = [
        Row(prompt, pages=[1 + 8 * index, 2 + 8 * index], seed=(index << 40) + index, **options[index])
        for index, prompt in enumerate(prompts)
    ]
    # The second row does not draft, so rows of the draft pass are not rows of the step.
    feeds = [Feed(prompt, num_verify=1, draft=index != 1) for index, prompt in enumerate(prompts)]
    out = engine.step(rows, feeds)
    logits, ids = (
        out["probe.drafter.logits" if case == "eagle3_qwen3" else "probe.drafter.logits_final"],
        target_ids(pair),
    )
    several = 0
    for at, row in enumerate((rows[0], rows[2], rows[3])):
        for slot in range(engine.num_drafts):
            wanted = drawn(logits[at, slot], row, len(row.prompt) + 1 + slot, ids)
            assert out["draft_ids"][at, slot] in wanted, f"row {at}, slot {slot}"
            several += len(wanted) > 1
    assert several <= 2, "near ties are rare"
