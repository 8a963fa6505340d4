# SPDX-License-Identifier: Apache-2.0
"""Every golden drafter opened as a user's folder and turned into its PyTorch module."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from hspec_trt.checkpoint.drafter import DrafterCheckpoint, load_drafter
from hspec_trt.checkpoint.target import load_target
from hspec_trt.checkpoint.target_checkpoint import TargetCheckpoint
from hspec_trt.errors import DrafterError
from hspec_trt.modeling.block import BlockInputs
from hspec_trt.modeling.load import drafter_model, eagle_model
from tests.support.golden_drafters import GOLDEN, load_case, target_folder

BLOCK = [
    "dflash_qwen3",
    "dflash_llama_full",
    "dspark_qwen3",
    "dspark_infill_gated",
    "dspark_llama_rnn",
    "peagle_qwen3",
    "peagle_llama",
]


def opened(name: str) -> tuple[DrafterCheckpoint, TargetCheckpoint]:
    target = load_target(target_folder(name))
    return load_drafter(GOLDEN / name / "drafter", target), target


@pytest.mark.parametrize("name", BLOCK)
def test_block_drafters(name: str) -> None:
    case, model = load_case(name), drafter_model(*opened(name))
    states = torch.from_numpy(case.fused("p1", model.drafter_config.fused_layers))
    if "p1.entry_ids" in case.vectors:
        entries = torch.from_numpy(case.get("p1", "entry_ids"))[None, : len(states)]
        anchor = entries[:, -1:], torch.tensor([[len(states)]])
    else:
        anchor = tuple(torch.from_numpy(case.get("p1", key))[None] for key in ("anchor_id", "anchor_pos"))
        entries = None
    drafts = model.draft(BlockInputs(*anchor, torch.empty(0), {}, {}, states[None], entries))
    assert drafts.target_ids[0, 0].tolist() == case.get("p1", "draft_tokens").tolist()


@pytest.mark.parametrize("name", ["eagle3_qwen3", "eagle3_llama"])
def test_chain_drafters(name: str) -> None:
    case, model = load_case(name), eagle_model(*opened(name))
    states = torch.from_numpy(case.fused("p1", model.config.fused_layers))
    tokens = torch.from_numpy(case.get("p1", "entry_ids"))[: len(states)]
    ids, _ = model.draft(tokens, states, model.config.num_drafts)
    assert model.target_ids[ids].tolist() == case.get("p1", "draft_tokens").tolist()


def test_tables_of_the_target_fill_in(tmp_path: Path) -> None:
    """A drafter without embedding or head of its own; the golden head is the target's, the embedding too."""
    case = load_case("eagle3_qwen3")
    drafter, target = opened("eagle3_qwen3")
    bare = {name: source for name, source in drafter.tensors.items() if name != "embed_tokens.weight"}
    model = eagle_model(DrafterCheckpoint(tmp_path, drafter.config, bare, {}), target)
    whole = eagle_model(drafter, target)
    assert torch.equal(model.embedding, whole.embedding)
    assert case.target.vocab_size == len(model.embedding)


def test_each_loader_refuses_the_others() -> None:
    for load, name in (
        (drafter_model, "eagle3_qwen3"),
        (eagle_model, "peagle_qwen3"),
        (eagle_model, "dflash_qwen3"),
    ):
        with pytest.raises(DrafterError) as raised:
            load(*opened(name))
        assert raised.value.code == "D210"


def test_original_layout_is_found_by_its_marks(tmp_path: Path) -> None:
    """A DSpark folder with another model type is refused; without one its heads give it away."""
    folder = tmp_path / "drafter"
    shutil.copytree(GOLDEN / "dspark_qwen3" / "drafter", folder)
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(
        text.replace('"speculators_model_type": "dspark"', '"speculators_model_type": "x"')
    )
    target = load_target(target_folder("dspark_qwen3"))
    with pytest.raises(DrafterError) as raised:
        load_drafter(folder, target)
    assert raised.value.code == "D001"
