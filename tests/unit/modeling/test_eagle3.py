# SPDX-License-Identifier: Apache-2.0
"""EAGLE-3 reference against chains of the speculators package's own module (build_scripts/make_eagle3_vectors.py)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hspec_trt.modeling.eagle3 import Eagle3
from tests.support.golden_drafters import GoldenCase, fill, load_case, tables_of

TOLERANCE = 2e-4  # stated by tests/golden/README.md for float32
SCRIPT = Path(__file__).parents[3] / "build_scripts" / "make_eagle3_vectors.py"


@pytest.fixture(scope="module", params=["eagle3_qwen3", "eagle3_llama"])
def case(request: pytest.FixtureRequest) -> GoldenCase:
    return load_case(request.param)


@pytest.fixture(scope="module")
def drafter(case: GoldenCase) -> Eagle3:
    config = case.layout().config
    return fill(Eagle3(config, tables_of(case, config)), case)


@torch.no_grad()
def test_chain_matches_official_module(case: GoldenCase, drafter: Eagle3) -> None:
    for prompt in case.prompts():
        states = torch.from_numpy(case.fused(prompt, drafter.config.fused_layers))
        entries = torch.from_numpy(case.get(prompt, "entry_ids"))
        ids, logits = drafter.draft(entries, states, drafter.config.num_drafts)
        np.testing.assert_allclose(logits.numpy(), case.get(prompt, "logits"), atol=TOLERANCE, rtol=0)
        assert ids.tolist() == case.get(prompt, "draft_ids").tolist()
        assert drafter.target_ids[ids].tolist() == case.get(prompt, "draft_tokens").tolist()


@torch.no_grad()
def test_window_cuts_the_chain_per_query(case: GoldenCase, drafter: Eagle3) -> None:
    """With a window of 6, states further back than that do not matter for any link, and the nearest ones do."""
    config = drafter.config
    narrow = Eagle3(replace(config, windows=(6,)), tables_of(case, config))
    narrow.load_state_dict(drafter.state_dict())
    states = torch.from_numpy(case.fused(case.prompts()[-1], config.fused_layers))
    entries = torch.from_numpy(case.get(case.prompts()[-1], "entry_ids"))
    last = len(entries) - 1
    _, plain = narrow.draft(entries, states, 3)
    for distance, same in ((6, True), (5, False)):
        changed = states.clone()
        changed[last - distance] += 10.0
        _, moved = narrow.draft(entries, changed, 3)
        assert torch.equal(moved[0], plain[0]) is same


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the speculators package needs Python 3.11")
def test_committed_vectors_are_what_the_package_gives() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
