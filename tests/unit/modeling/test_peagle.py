# SPDX-License-Identifier: Apache-2.0
"""P-EAGLE reference against golden vectors of the official module."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hspec_trt.modeling.block import BlockInputs
from hspec_trt.modeling.peagle import PEagle
from tests.support.golden_drafters import GoldenCase, fill, load_case, tables_of

TOLERANCE = 2e-4  # stated by tests/golden/README.md for float32


@pytest.fixture(scope="module", params=["peagle_qwen3", "peagle_llama"])
def case(request: pytest.FixtureRequest) -> GoldenCase:
    return load_case(request.param)


@pytest.fixture(scope="module")
def drafter(case: GoldenCase) -> PEagle:
    config = case.layout().config
    return fill(PEagle(config, tables_of(case, config)), case)


def close(actual: torch.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual.numpy(), expected, atol=TOLERANCE, rtol=0)


def inputs_at(case: GoldenCase, drafter: PEagle, prompt: str, ends: list[int], extra: int = 0) -> BlockInputs:
    """One text with an anchor after each of `ends` entries, and `extra` entries of garbage after it."""
    states = torch.from_numpy(case.fused(prompt, drafter.config.fused_layers))
    entries = torch.from_numpy(case.get(prompt, "entry_ids"))[: len(states)]
    states = torch.cat([states, torch.full((extra, states.shape[1]), 1e3)])
    entries = torch.cat([entries, entries[:extra]])
    anchors = torch.tensor(ends)
    return BlockInputs(
        entries[anchors - 1][None], anchors[None], torch.empty(0), {}, {}, states[None], next_ids=entries[None]
    )


@torch.no_grad()
def test_drafts_match_official_module(case: GoldenCase, drafter: PEagle) -> None:
    for prompt in case.prompts():
        real = len(case.fused(prompt, drafter.config.fused_layers))
        inputs = inputs_at(case, drafter, prompt, [real], extra=2)
        close(drafter.hidden(inputs)[0, 0], case.get(prompt, "hidden"))
        drafts = drafter.draft(inputs)
        close(drafts.logits[0, 0], case.get(prompt, "logits"))
        assert drafts.draft_ids[0, 0].tolist() == case.get(prompt, "draft_ids").tolist()
        assert drafts.target_ids[0, 0].tolist() == case.get(prompt, "draft_tokens").tolist()


@torch.no_grad()
def test_inner_states_match_official_module(case: GoldenCase, drafter: PEagle) -> None:
    """Every entry's fused state, keys and values, mask entries included."""
    for prompt in case.prompts():
        states = torch.from_numpy(case.fused(prompt, drafter.config.fused_layers))
        extra = drafter.config.num_drafts - 1
        entries = torch.from_numpy(case.get(prompt, "entry_ids"))
        assert entries[len(states) :].tolist() == [drafter.config.mask_token_id] * extra
        g = drafter.fuse(torch.cat([states, drafter.mask_hidden[0].expand(extra, -1)]))
        close(g, case.get(prompt, "g"))
        positions = torch.arange(len(entries))
        _, caches = drafter.run(entries, g, positions, drafter.causal_masks(positions, positions))
        for layer, (key, value) in enumerate(caches):
            close(key.transpose(0, 1), case.get(prompt, f"k.{layer}"))
            close(value.transpose(0, 1), case.get(prompt, f"v.{layer}"))


@torch.no_grad()
def test_anchors_of_one_text_do_not_mix(case: GoldenCase, drafter: PEagle) -> None:
    """Chains at several anchors give what each gives in a text that ends there; cut chains are their beginning."""
    prompt = case.prompts()[-1]
    ends = [1, 9, 21]
    together = drafter.hidden(inputs_at(case, drafter, prompt, ends))[0]
    for number, end in enumerate(ends):
        whole = inputs_at(case, drafter, prompt, [end])
        assert whole.context is not None
        assert whole.next_ids is not None
        text = BlockInputs(
            whole.anchor_ids,
            whole.anchors,
            whole.fused,
            {},
            {},
            whole.context[:, :end],
            next_ids=whole.next_ids[:, :end],
        )
        torch.testing.assert_close(together[number], drafter.hidden(text)[0, 0], atol=1e-4, rtol=0)
        cut = drafter.hidden(text, num_slots=2)[0, 0]
        torch.testing.assert_close(cut, together[number, :2], atol=1e-4, rtol=0)


def test_successors_of_every_token_are_needed(case: GoldenCase, drafter: PEagle) -> None:
    one = torch.ones(1, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match="next_ids"):
        drafter.hidden(BlockInputs(one, one, torch.empty(0), {}, {}))
