# SPDX-License-Identifier: Apache-2.0
"""P-EAGLE reference against golden vectors of the official module."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hspec_trt.modeling.peagle import PEagle
from tests.support.golden_drafters import GoldenCase, load_case

TOLERANCE = 2e-4  # stated by tests/golden/README.md for float32


@pytest.fixture(scope="module", params=["peagle_qwen3", "peagle_llama"])
def case(request: pytest.FixtureRequest) -> GoldenCase:
    return load_case(request.param)


@pytest.fixture(scope="module")
def drafter(case: GoldenCase) -> PEagle:
    model = PEagle(case.layout().config)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in case.arrays.items() if name != "t2d"})
    return model.eval()


def close(actual: torch.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual.numpy(), expected, atol=TOLERANCE, rtol=0)


@torch.no_grad()
def test_drafts_match_official_module(case: GoldenCase, drafter: PEagle) -> None:
    for prompt in case.prompts():
        states = torch.from_numpy(case.fused(prompt, drafter.config.fused_layers))
        tokens = torch.from_numpy(case.get(prompt, "entry_ids"))[: len(states)]
        ids, logits = drafter.draft(tokens, states, drafter.config.num_drafts)
        close(logits, case.get(prompt, "logits"))
        assert ids.tolist() == case.get(prompt, "draft_ids").tolist()
        assert drafter.to_target(ids).tolist() == case.get(prompt, "draft_tokens").tolist()


@torch.no_grad()
def test_inner_states_match_official_module(case: GoldenCase, drafter: PEagle) -> None:
    """Every entry's fused state, keys, values and final hidden state, through the masks of training."""
    for prompt in case.prompts():
        states = torch.from_numpy(case.fused(prompt, drafter.config.fused_layers))
        real, extra = len(states), drafter.config.num_drafts - 1
        anchors = torch.cat([torch.arange(real), torch.full((extra,), real - 1)])
        depths = torch.cat([torch.zeros(real, dtype=torch.long), torch.arange(1, extra + 1)])
        entries = torch.from_numpy(case.get(prompt, "entry_ids"))
        padded = torch.cat([states, torch.full((extra, states.shape[1]), 1e3)])
        tokens, g = drafter.entries(entries, padded, depths > 0)
        assert tokens.tolist() == entries.tolist()
        close(g, case.get(prompt, "g"))
        x, caches = drafter.run(tokens, g, anchors + depths, drafter.depth_masks(anchors, depths))
        for layer, (key, value) in enumerate(caches):
            close(key, case.get(prompt, f"k.{layer}"))
            close(value, case.get(prompt, f"v.{layer}"))
        close(drafter.norm(x)[real - 1 :], case.get(prompt, "hidden"))


@torch.no_grad()
def test_sampled_depths_of_several_anchors_do_not_mix(case: GoldenCase, drafter: PEagle) -> None:
    """Two anchors with two depths each, beside all real entries, give what each gives in a text that ends there."""
    prompt = case.prompts()[-1]
    states = torch.from_numpy(case.fused(prompt, drafter.config.fused_layers))
    entries = torch.from_numpy(case.get(prompt, "entry_ids"))[: len(states)]
    real, ends = len(states), [8, 20]
    anchors = torch.cat([torch.arange(real), torch.tensor(ends).repeat_interleave(2)])
    depths = torch.cat([torch.zeros(real, dtype=torch.long), torch.tensor([1, 2, 1, 2])])
    tokens, g = drafter.entries(torch.cat([entries, entries[:4]]), torch.cat([states, states[:4]]), depths > 0)
    x, _ = drafter.run(tokens, g, anchors + depths, drafter.depth_masks(anchors, depths))
    for number, end in enumerate(ends):
        _, alone = drafter.draft(entries[: end + 1], states[: end + 1], 3)
        extra = real + 2 * number
        mine = torch.cat([x[end : end + 1], x[extra : extra + 2]])
        torch.testing.assert_close(drafter.logits(mine), alone, atol=1e-4, rtol=0)
