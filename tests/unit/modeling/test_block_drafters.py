# SPDX-License-Identifier: Apache-2.0
"""DFlash and DSpark references against golden vectors of the official modules, both window rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hspec_trt.modeling.attention import WindowEdge
from hspec_trt.modeling.block import BlockInputs, HeadTrace
from hspec_trt.modeling.dflash import DFlashModel, DFlashTrace
from hspec_trt.modeling.load import block_module
from tests.support.golden_drafters import GoldenCase, fill, load_case, tables_of
from tests.support.tolerance import assert_golden

CASES = ["dflash_qwen3", "dflash_llama_full", "dspark_qwen3", "dspark_infill_gated", "dspark_llama_rnn"]


def model_of(case: GoldenCase) -> DFlashModel:
    config = case.layout().config
    model = fill(block_module(config, tables_of(case, config)), case)
    assert isinstance(model, DFlashModel)
    return model


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> GoldenCase:
    return load_case(request.param)


@pytest.fixture(scope="module")
def model(case: GoldenCase) -> DFlashModel:
    return model_of(case)


def inputs_of(states: torch.Tensor, anchor_ids: torch.Tensor, anchors: torch.Tensor) -> BlockInputs:
    """One sequence: states ``[T, F * hidden]``, anchors ``[A]``."""
    return BlockInputs(anchor_ids[None], anchors[None], torch.empty(0), {}, {}, states[None])


def prompt_inputs(case: GoldenCase, prompt: str, layers: tuple[int, ...]) -> BlockInputs:
    anchor = (torch.from_numpy(case.get(prompt, key)) for key in ("anchor_id", "anchor_pos"))
    return inputs_of(torch.from_numpy(case.fused(prompt, layers)), *anchor)


@torch.no_grad()
@pytest.mark.parametrize("edge", ["slot", "anchor"])
def test_backbone_matches_official_modules(case: GoldenCase, model: DFlashModel, edge: WindowEdge) -> None:
    for prompt in case.prompts():
        prefix = "trainwin." if edge == "anchor" and f"{prompt}.trainwin.hidden" in case.vectors else ""
        trace = DFlashTrace()
        hidden = model.hidden(prompt_inputs(case, prompt, model.config.fused_layers), window_edge=edge, trace=trace)
        assert trace.features is not None
        assert_golden(trace.features[0], case.get(prompt, "C"), "C")
        for layer, (key, value) in enumerate(trace.context):
            assert_golden(key[0].transpose(0, 1), case.get(prompt, f"ctx_k.{layer}"), "K")
            assert_golden(value[0].transpose(0, 1), case.get(prompt, f"ctx_v.{layer}"), "V")
            assert_golden(trace.layers[layer][0, 0], case.get(prompt, f"{prefix}layer.{layer}"), "layer")
        assert_golden(hidden[0, 0], case.get(prompt, f"{prefix}hidden"), "hidden")
        assert_golden(model.logits(hidden)[0, 0], case.get(prompt, f"{prefix}logits_base"), "logits")


@pytest.mark.parametrize("edge", ["slot", "anchor"])
def test_drafts_match_official_modules(case: GoldenCase, model: DFlashModel, edge: WindowEdge) -> None:
    for prompt in case.prompts():
        prefix = "trainwin." if edge == "anchor" and f"{prompt}.trainwin.hidden" in case.vectors else ""
        drafts = model.draft(prompt_inputs(case, prompt, model.config.fused_layers), window_edge=edge)
        assert drafts.draft_ids[0, 0].tolist() == case.get(prompt, f"{prefix}draft_ids").tolist()
        assert drafts.target_ids[0, 0].tolist() == case.get(prompt, f"{prefix}draft_tokens").tolist()
        want = case.get(prompt, f"{prefix}logits_final")[model.config.first_slot :]
        assert_golden(drafts.logits[0, 0], want, "logits")


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("dspark")])
def test_heads_match_official_modules_on_every_slot(name: str) -> None:
    case, trace = load_case(name), HeadTrace()
    model = model_of(case)
    for prompt in case.prompts():
        model.draft(prompt_inputs(case, prompt, model.config.fused_layers), trace=trace)
        assert_golden(torch.stack(trace.corrected, -2)[0, 0], case.get(prompt, "logits_final"), "logits")
        assert trace.confidence is not None
        assert_golden(trace.confidence[0, 0], case.get(prompt, "confidence_logits"), "confidence")
        assert torch.stack(trace.previous, -1)[0, 0].tolist() == case.get(prompt, "prev_ids").tolist()


@torch.no_grad()
def test_blocks_of_one_pass_do_not_see_each_other(case: GoldenCase, model: DFlashModel) -> None:
    states = torch.from_numpy(case.fused(case.prompts()[-1], model.config.fused_layers))
    anchors, ids = torch.tensor([3, 9, len(states)]), torch.tensor([1, 5, 7])
    together = model.hidden(inputs_of(states, ids, anchors))[0]
    for row in range(3):
        alone = model.hidden(inputs_of(states[: anchors[row]], ids[row : row + 1], anchors[row : row + 1]))
        torch.testing.assert_close(together[row], alone[0, 0], atol=1e-5, rtol=0)


@torch.no_grad()
def test_causal_blocks_may_be_cut(case: GoldenCase, model: DFlashModel) -> None:
    inputs = prompt_inputs(case, "p1", model.config.fused_layers)
    whole, cut = model.hidden(inputs), model.hidden(inputs, num_slots=3)
    same = torch.allclose(whole[..., :3, :], cut, atol=1e-5)
    assert same is all(model.config.causal)


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("dspark")])
def test_corrections_of_known_tokens_are_the_serial_ones(name: str) -> None:
    """Over a whole block at once, as in training."""
    case, trace = load_case(name), HeadTrace()
    model = model_of(case)
    assert model.markov_head is not None
    inputs = prompt_inputs(case, "p2", model.config.fused_layers)
    model.draft(inputs, trace=trace)
    first = model.first_slot
    rows = model.markov_rows(inputs, torch.stack(trace.previous[first:], -1), model.hidden(inputs))
    assert trace.base is not None
    assert rows is not None
    correction = model.markov_head.correction(rows)
    wanted = torch.stack(trace.corrected[first:], -2)
    torch.testing.assert_close(trace.base[..., first:, :] + correction, wanted, atol=1e-5, rtol=0)
    assert correction.abs().max() > 1e-2


def test_mask_vector_takes_the_place_of_the_embedding_row() -> None:
    case = load_case("dflash_qwen3")
    table = case.arrays["embed_tokens.weight"]
    config = case.layout().config
    named = replace(case, arrays={**case.arrays, "mask_embedding": table[config.mask_token_id]})
    blank = {**named.arrays, "embed_tokens.weight": np.where(np.arange(256)[:, None] == 255, 0, table)}
    drafts = [
        model_of(one).draft(prompt_inputs(case, "p1", config.fused_layers)).draft_ids.tolist()
        for one in (case, replace(named, arrays=blank))
    ]
    assert drafts[0] == drafts[1]


def test_states_of_every_token_are_needed() -> None:
    model = model_of(load_case("dflash_qwen3"))
    one = torch.ones(1, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match="context"):
        model.draft(BlockInputs(one, one, torch.empty(0), {}, {}))
