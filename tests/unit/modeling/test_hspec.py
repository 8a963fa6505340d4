# SPDX-License-Identifier: Apache-2.0
"""The PyTorch H-Spec against the golden vectors: every inner value, both window rules, drafts exact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.checkpoint.target import load_target
from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.modeling.attention import WindowEdge
from hspec_trt.modeling.block import BlockInputs
from hspec_trt.modeling.hspec import BlockTrace, HSpecModel
from hspec_trt.modeling.load import drafter_model
from tests.support.golden import GOLDEN, vectors

CASES = ("hspec_qwen3", "hspec_llama", "hspec_fullattn", "hspec_nokv", "hspec_noseed")
PROMPTS = (0, 1, 2)
TOLERANCE = 2e-4
"""Absolute, as tests/golden/README.md states for a float32 engine."""


def _model(case: str) -> tuple[HSpecModel, HSpecConfig, TargetConfig]:
    target = load_target(GOLDEN / case / "target")
    drafter = load_drafter(GOLDEN / case / "drafter", target)
    model = drafter_model(drafter, target)
    assert isinstance(model, HSpecModel)
    return model, model.config, target.config


def _inputs(config: HSpecConfig, given: Mapping[str, Tensor], prompt: int) -> BlockInputs:
    """One anchor of one sequence; rows at and after the anchor hold garbage that must not be read."""
    name = f"p{prompt}."
    context = {}
    for part in "kv":
        for layer in set(config.attn_kv_layers):
            rows = given[f"{name}target.{part}.{layer}"].transpose(0, 1)
            context[part, layer] = torch.cat([rows, torch.full((3, *rows.shape[1:]), 1e4)])[None]
    fused = given.get(f"{name}fused", torch.empty(0))
    return BlockInputs(
        given[f"{name}anchor_id"][None],
        given[f"{name}anchor_pos"][None],
        fused[None, None],
        {layer: context["k", layer] for layer in config.attn_kv_layers},
        {layer: context["v", layer] for layer in config.attn_kv_layers},
    )


def _close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.squeeze(), wanted.squeeze(), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("edge", ["slot", "anchor"])
def test_golden(case: str, prompt: int, edge: WindowEdge) -> None:
    model, config, _ = _model(case)
    given = vectors(case)
    name = f"p{prompt}." + ("trainwin." if edge == "anchor" and f"p{prompt}.trainwin.hidden" in given else "")
    inputs, trace = _inputs(config, given, prompt), BlockTrace()
    with torch.no_grad():
        hidden = model.hidden(inputs, window_edge=edge, trace=trace)
        base = model.logits(hidden)
    if config.state_injection:
        assert trace.z is not None
        _close(trace.z, given[f"p{prompt}.z"])
        for index, seed in enumerate(trace.seeds):
            _close(seed, given[f"p{prompt}.S0.{index}"])
    for index, stream in enumerate(trace.sub_layers):
        wanted = given.get(f"{name}sub.{index}", given[f"p{prompt}.sub.{index}"])
        _close(stream, wanted)
    _close(hidden, given[f"{name}hidden"])
    _close(base, given[f"{name}logits_base"])
    drafts = model.draft(inputs, window_edge=edge)
    assert drafts.draft_ids.flatten().tolist() == given[f"{name}draft_ids"].tolist()
    assert drafts.target_ids.flatten().tolist() == given[f"{name}draft_tokens"].tolist()
    _close(drafts.logits, given[f"{name}logits_final"][1:])
    if config.confidence_head:
        assert drafts.confidence is not None
        _close(drafts.confidence, given[f"{name}confidence_logits"][1:])


@pytest.mark.parametrize("case", ["hspec_qwen3", "hspec_nokv"])
def test_a_causal_block_may_be_cut(case: str) -> None:
    model, config, _ = _model(case)
    inputs = _inputs(config, vectors(case), 2)
    with torch.no_grad():
        torch.testing.assert_close(model.hidden(inputs, num_slots=3), model.hidden(inputs)[:, :, :3], atol=1e-5, rtol=0)


def test_anchors_of_one_batch_do_not_see_each_other() -> None:
    """Several anchors of two sequences of unequal length at once equal one block at a time."""
    model, config, _ = _model("hspec_qwen3")
    torch.manual_seed(0)
    lengths, anchors = (20, 31), torch.tensor([[1, 9, 20], [30, 2, 31]])
    shape = (2, max(lengths), config.num_kv_heads, config.head_dim)
    keys = {layer: torch.randn(shape) for layer in config.attn_kv_layers}
    values = {layer: torch.randn(shape) for layer in config.attn_kv_layers}
    fused = torch.randn(2, 3, len(config.fused_layers) * config.hidden_size)
    ids = torch.randint(0, config.vocab_size, (2, 3))
    with torch.no_grad():
        together = model.hidden(BlockInputs(ids, anchors, fused, keys, values))
        for row in range(2):
            for column in range(3):
                cut = slice(0, int(anchors[row, column]))
                alone = model.hidden(
                    BlockInputs(
                        ids[row : row + 1, column : column + 1],
                        anchors[row : row + 1, column : column + 1],
                        fused[row : row + 1, column : column + 1],
                        {layer: key[row : row + 1, cut] for layer, key in keys.items()},
                        {layer: value[row : row + 1, cut] for layer, value in values.items()},
                    )
                )
                torch.testing.assert_close(together[row, column], alone[0, 0], atol=1e-4, rtol=0)


def test_state_dict_carries_the_published_names(tmp_path: Path) -> None:
    for case in CASES:
        model, _, _ = _model(case)
        target = load_target(GOLDEN / case / "target")
        stored = set(load_drafter(GOLDEN / case / "drafter", target).tensors)
        assert set(model.state_dict()) == stored - {"embed_tokens.weight", "lm_head.weight", "d2t", "t2d"}
