# SPDX-License-Identifier: Apache-2.0
"""Visibility rules at their edges, and the attention itself against a loop over heads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.checkpoint.target import load_target
from hspec_trt.modeling.attention import BlockView, attend, block_mask, context_mask
from hspec_trt.modeling.block import BlockInputs
from hspec_trt.modeling.hspec import BlockTrace, HSpecModel
from hspec_trt.modeling.load import drafter_model
from tests.support.golden import GOLDEN


def _seen(view: BlockView, *, anchor: int = 9, slots: int = 4, length: int = 12) -> list[list[int]]:
    mask = context_mask(torch.tensor([[anchor]]), block_size=slots, context_len=length, view=view)
    return [row.nonzero().flatten().tolist() for row in mask[0, 0]]


def test_without_a_window_the_whole_prefix_is_seen_and_no_more() -> None:
    assert _seen(BlockView(0, causal=False)) == [list(range(9))] * 4
    assert _seen(BlockView(100, causal=True)) == [list(range(9))] * 4
    assert _seen(BlockView(0, causal=False), anchor=0) == [[]] * 4


def test_a_served_window_moves_with_the_slot() -> None:
    """Slot k at position p + k sees t > p + k - W: the window counts the slot itself."""
    assert _seen(BlockView(5, causal=True)) == [[5, 6, 7, 8], [6, 7, 8], [7, 8], [8]]
    assert _seen(BlockView(1, causal=True)) == [[]] * 4


def test_a_trained_window_has_one_edge() -> None:
    assert _seen(BlockView(5, causal=True, edge="anchor")) == [[4, 5, 6, 7, 8]] * 4


def test_no_context() -> None:
    assert _seen(BlockView(5, causal=True, context=False)) == [[]] * 4
    assert (
        block_mask(3, BlockView(5, causal=True, context=False)).tolist()
        == block_mask(3, BlockView(5, causal=True)).tolist()
    )


def test_inside_the_block() -> None:
    """Causal or not; a served window shorter than the block cuts it too, a trained one does not."""
    assert block_mask(3, BlockView(0, causal=False)).all()
    assert block_mask(3, BlockView(8, causal=True)).tolist() == torch.ones(3, 3).tril().bool().tolist()
    assert block_mask(4, BlockView(2, causal=True)).int().tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
    ]
    assert (
        block_mask(4, BlockView(2, causal=True, edge="anchor")).int().tolist() == torch.ones(4, 4).tril().int().tolist()
    )
    assert block_mask(3, BlockView(2, causal=False)).int().tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]


def test_attend_equals_a_loop_over_heads() -> None:
    torch.manual_seed(0)
    sequences, anchors, slots, heads, kv_heads, dim, length = 2, 3, 4, 6, 2, 8, 7
    query = torch.randn(sequences, anchors, slots, heads, dim)
    key, value = (torch.randn(sequences, anchors, slots, kv_heads, dim) for _ in range(2))
    context = torch.randn(sequences, length, kv_heads, dim), torch.randn(sequences, length, kv_heads, dim)
    positions = torch.tensor([[1, 4, 7], [2, 3, 6]])
    view = BlockView(4, causal=True)
    masks = (
        context_mask(positions, block_size=slots, context_len=length, view=view),
        block_mask(slots, view),
    )
    found = attend(query, key, value, context, masks)
    for s in range(sequences):
        for a in range(anchors):
            for h in range(heads):
                group = h // (heads // kv_heads)
                keys = torch.cat([context[0][s, :, group], key[s, a, :, group]])
                values = torch.cat([context[1][s, :, group], value[s, a, :, group]])
                scores = query[s, a, :, h] @ keys.T * dim**-0.5
                seen = torch.cat([masks[0][s, a], masks[1]], dim=-1)
                wanted = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ values
                torch.testing.assert_close(found[s, a, :, h], wanted, atol=1e-5, rtol=1e-5)


def _attention_change(model: HSpecModel, inputs: BlockInputs, index: int) -> Tensor:
    trace = BlockTrace()
    with torch.no_grad():
        model.hidden(inputs, trace=trace)
    return trace.sub_layers[index] - trace.sub_layers[index - 1]


@pytest.mark.parametrize(("window", "changes"), [(8, False), (0, True)])
def test_a_window_hides_what_is_far(window: int, changes: bool) -> None:
    """Forty tokens of context, the tenth one changed: a sliding sub-layer does not notice, a full one does."""
    target = load_target(GOLDEN / "hspec_qwen3" / "target")
    model = drafter_model(load_drafter(GOLDEN / "hspec_qwen3" / "drafter", target), target)
    assert isinstance(model, HSpecModel)
    model.config = replace(model.config, attn_windows=(window, 12, 12))
    torch.manual_seed(0)
    shape = (1, 40, model.config.num_kv_heads, model.config.head_dim)
    keys = {layer: torch.randn(shape) for layer in model.config.attn_kv_layers}
    values = {layer: torch.randn(shape) for layer in model.config.attn_kv_layers}
    fused = torch.randn(1, 1, len(model.config.fused_layers) * model.config.hidden_size)
    inputs = BlockInputs(torch.tensor([[7]]), torch.tensor([[40]]), fused, keys, values)
    first = model.config.block_pattern.index("attention")
    before = _attention_change(model, inputs, first)
    values[model.config.attn_kv_layers[0]][0, 10] += 5.0
    assert bool((_attention_change(model, inputs, first) - before).abs().max() > 1e-3) is changes
