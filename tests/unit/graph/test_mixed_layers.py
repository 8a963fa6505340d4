# SPDX-License-Identifier: Apache-2.0
"""Layers of one drafter that differ in window and causality (case B10), which no golden case has: the graph gives what
the PyTorch reference gives, and neither treats all layers as the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from hspec_trt.config.build import BuildConfig
from hspec_trt.config.drafters_block import WindowRule
from hspec_trt.modeling.attention import WindowEdge
from hspec_trt.modeling.block import BlockInputs
from hspec_trt.modeling.dflash import DFlashModel
from hspec_trt.modeling.eagle3 import Eagle3
from hspec_trt.modeling.peagle import PEagle
from tests.support.graph_engine import Engine, Feed, Row, write_engine
from tests.support.random_drafter import RandomDrafter, random_drafter
from tests.support.tolerance import GOLDEN_ABSOLUTE, assert_golden, largest_difference

EDGES: dict[WindowRule, WindowEdge] = {"serving": "slot", "training": "anchor"}
MIXED: dict[str, tuple[str, dict[str, tuple]]] = {
    "dflash": ("dflash_qwen3", {"windows": (12, 0, 12), "causal": (True, False, True)}),
    "dflash, window in the middle": ("dflash_llama_full", {"windows": (0, 9, 0), "causal": (False, True, False)}),
    "dflash, windows beside bidirectional blocks": (
        "dflash_qwen3",
        {"windows": (12, 7, 0), "causal": (False, True, False)},
    ),
    "dspark": ("dspark_qwen3", {"windows": (12, 0, 12), "causal": (True, False, True)}),
    "dspark, all causal": ("dspark_llama_rnn", {"windows": (0, 6), "causal": (True, True)}),
    "peagle": ("peagle_qwen3", {"windows": (12, 0, 12)}),
    "peagle, full at the ends": ("peagle_llama", {"windows": (0, 6, 0)}),
    "eagle3": ("eagle3_qwen3", {"windows": (6,)}),
    "eagle3, two layers": ("eagle3_llama", {"windows": (0, 6)}),
}
BLOCKS = [what for what in MIXED if what.startswith(("dflash", "dspark"))]
CASES = [
    *((what, rule) for what in BLOCKS for rule in EDGES),
    *((what, "serving") for what in MIXED if what not in BLOCKS),
]


def reference(drafter: RandomDrafter, prompt: str, edge: WindowEdge) -> tuple[np.ndarray, list[int]]:
    """Logits ``[G, Vd]`` of the slots that propose, and the drafts."""
    case, module = drafter.case, drafter.module
    states = torch.from_numpy(case.fused(prompt, drafter.config.fused_layers))
    anchor = torch.from_numpy(case.get(prompt, "anchor_id"))
    entries = torch.cat([torch.from_numpy(case.get(prompt, "prompt_ids"))[1:], anchor])
    if isinstance(module, Eagle3):
        ids, logits = module.draft(entries, states, drafter.config.num_drafts)
        return logits.numpy(), module.target_ids[ids].tolist()
    assert isinstance(module, DFlashModel | PEagle)
    inputs = BlockInputs(
        anchor[None], torch.tensor([[len(states)]]), torch.empty(0), {}, {}, states[None], next_ids=entries[None]
    )
    drafts = module.draft(inputs, window_edge=edge)
    return drafts.logits[0, 0].numpy(), drafts.target_ids[0, 0].tolist()


def drafted(drafter: RandomDrafter, rule: WindowRule, folder: Path) -> Iterator[tuple[str, np.ndarray, list[int]]]:
    """What the graph gives for each prompt of the case, as `reference`."""
    build = BuildConfig(page_size=16, draft_window=rule)
    engine = Engine(write_engine(folder, drafter.pair, build, probes=True), drafter.pair, build, num_pages=8)
    probe = next(name for name in engine.outputs if name in ("probe.drafter.logits", "probe.drafter.logits_final"))
    for prompt in drafter.case.prompts():
        tokens = [int(token) for token in drafter.case.get(prompt, "prompt_ids")]
        out = engine.step([Row(tokens, pages=[1, 2, 3])], [Feed(tokens, num_verify=1, draft=True)])
        yield prompt, out[probe][0], out["draft_ids"][0].tolist()


@pytest.mark.parametrize(("what", "rule"), CASES)
def test_graph_and_reference_agree(what: str, rule: WindowRule, tmp_path: Path) -> None:
    name, changes = MIXED[what]
    drafter = random_drafter(name, **changes)
    for prompt, logits, drafts in drafted(drafter, rule, tmp_path):
        want, ids = reference(drafter, prompt, EDGES[rule])
        assert_golden(logits, want, prompt)
        assert drafts == ids


@pytest.mark.parametrize("what", MIXED)
def test_every_layers_own_window_matters(what: str) -> None:
    """With one layer's window or causality taken for another's, the reference itself says something else."""
    name, changes = MIXED[what]
    drafter = random_drafter(name, **changes)
    prompt = drafter.case.prompts()[-1]
    right, _ = reference(drafter, prompt, "slot")
    for field, values in changes.items():
        for layer, value in enumerate(values):
            for other in {*values, 0 if field == "windows" else False} - {value}:
                wrong = (*values[:layer], other, *values[layer + 1 :])
                changed = random_drafter(name, **{**changes, field: wrong})
                logits, _ = reference(changed, prompt, "slot")
                assert largest_difference(logits, right) > GOLDEN_ABSOLUTE, (field, layer, other)
