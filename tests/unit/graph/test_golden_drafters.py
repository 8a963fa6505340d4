# SPDX-License-Identifier: Apache-2.0
"""Every golden case of DFlash, DSpark, P-EAGLE and EAGLE-3 through the fused graph: states, cache, logits, drafts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from hspec_trt.config.build import BuildConfig
from hspec_trt.config.drafters_block import DFlashConfig, WindowRule
from hspec_trt.modeling.block import BlockInputs
from hspec_trt.modeling.dflash import DFlashModel
from hspec_trt.modeling.load import block_module
from tests.support.golden_drafters import GoldenCase, fill, load_case, pair_of, tables_of, target_folder
from tests.support.graph_engine import Engine, Feed, Row, write_engine
from tests.support.tolerance import assert_golden

PAGE_SIZE = 16
BLOCK_CASES = ["dflash_qwen3", "dflash_llama_full", "dspark_qwen3", "dspark_infill_gated", "dspark_llama_rnn"]
ENTRY_CASES = ["peagle_qwen3", "peagle_llama", "eagle3_qwen3", "eagle3_llama"]
PROMPTS = ["p0", "p1", "p2"]
golden = cache(load_case)
Make = Callable[[str, WindowRule], Engine]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    graphs: dict[tuple[str, WindowRule], object] = {}

    def engine(name: str, rule: WindowRule = "serving") -> Engine:
        pair = pair_of(golden(name))
        confident = name.startswith("dspark")
        build = BuildConfig(page_size=PAGE_SIZE, draft_window=rule, draft_confidence=confident)
        if (name, rule) not in graphs:
            graphs[name, rule] = write_engine(tmp_path_factory.mktemp(name), pair, build, probes=True)
        return Engine(graphs[name, rule], pair, build, num_pages=64)  # type: ignore[arg-type]

    return engine


def run_prompt(engine: Engine, case: GoldenCase, prompt: str) -> tuple[Row, dict[str, np.ndarray]]:
    tokens = [int(token) for token in case.get(prompt, "prompt_ids")]
    row = Row(tokens, pages=[31, 7, 19, 3])
    out = engine.step([row], [Feed(tokens, num_verify=1, draft=True)])
    assert out["emitted_ids"][0, 0] == case.get(prompt, "anchor_id")[0]
    return row, out


def cached(engine: Engine, row: Row, layer: int, part: int) -> np.ndarray:
    """The drafter's K (0) or V (1) of a row as [kv_heads, tokens, d]."""
    pages = engine.page_values(layer, drafter=True)[row.pages, part]
    return np.concatenate(list(pages), axis=1)[:, : len(row.prompt)]


@pytest.mark.parametrize("rule", ["serving", "training"])
@pytest.mark.parametrize("name", BLOCK_CASES)
def test_block_drafters(name: str, rule: WindowRule, make: Make) -> None:
    case, engine = golden(name), make(name, rule)
    config = engine.pair.drafter
    assert isinstance(config, DFlashConfig)
    for prompt in PROMPTS:
        differs = rule == "training" and f"{prompt}.trainwin.hidden" in case.vectors
        prefix = "trainwin." if differs else ""
        row, out = run_prompt(engine, case, prompt)
        assert_golden(out["probe.drafter.C"], case.get(prompt, "C"), "C")
        for layer in range(config.num_cache_layers):
            assert_golden(cached(engine, row, layer, 0), case.get(prompt, f"ctx_k.{layer}"), "K")
            assert_golden(cached(engine, row, layer, 1), case.get(prompt, f"ctx_v.{layer}"), "V")
            slots = out[f"probe.drafter.layer.{layer}"]
            assert_golden(slots, case.get(prompt, f"{prefix}layer.{layer}")[: len(slots)], "layer")
        slots = out["probe.drafter.hidden"]
        assert_golden(slots, case.get(prompt, f"{prefix}hidden")[: len(slots)], "hidden")
        for quantity in ("logits_base", "logits_final"):
            want = case.get(prompt, f"{prefix}{quantity}")[config.first_slot :]
            assert_golden(out[f"probe.drafter.{quantity}"][0], want, quantity)
        assert out["draft_ids"][0].tolist() == case.get(prompt, f"{prefix}draft_tokens").tolist()
        if name.startswith("dspark"):
            want = case.get(prompt, f"{prefix}confidence_logits")[config.first_slot :]
            assert_golden(out["probe.drafter.confidence_logits"][0], want, "confidence")
            assert_golden(out["draft_confidence"][0], 1 / (1 + np.exp(-want)), "confidence")


@pytest.mark.parametrize("own_table", [True, False])
def test_mask_vector_is_for_mask_slots_only(own_table: bool, tmp_path: Path) -> None:
    """An anchor that is the mask token has its row of the table, in the graph and in the PyTorch reference."""
    case = golden("dflash_qwen3")
    table, vector = case.arrays["embed_tokens.weight"].copy(), np.linspace(-1, 1, 48, dtype=np.float32)
    anchor = int(case.get("p0", "anchor_id")[0])
    table[anchor] = 0.0
    arrays = {**case.arrays, "mask_embedding": vector, "embed_tokens.weight": table}
    config_json = {**case.config_json, "mask_token_id": anchor}
    target = load_file(target_folder(case.name) / "model.safetensors")
    if not own_table:
        del arrays["embed_tokens.weight"]
        table = target["model.embed_tokens.weight"]
    masked = replace(case, arrays=arrays, config_json=config_json)
    pair, build = pair_of(masked), BuildConfig(page_size=PAGE_SIZE)
    engine = Engine(write_engine(tmp_path, pair, build, probes=True), pair, build, num_pages=64)
    _, out = run_prompt(engine, masked, "p0")
    embedded = out["probe.drafter.embed"]
    assert (embedded[0] == table[anchor]).all()
    assert (embedded[1:] == vector).all()
    assert isinstance(pair.drafter, DFlashConfig)
    full = replace(masked, arrays={**arrays, "embed_tokens.weight": table})
    model = fill(block_module(pair.drafter, tables_of(full, pair.drafter)), full)
    assert isinstance(model, DFlashModel)
    states = torch.from_numpy(case.fused("p0", pair.drafter.fused_layers))[None]
    ids, place = (torch.from_numpy(case.get("p0", key))[None] for key in ("anchor_id", "anchor_pos"))
    drafts = model.draft(BlockInputs(ids, place, torch.empty(0), {}, {}, states))
    assert out["draft_ids"][0].tolist() == drafts.target_ids[0, 0].tolist()


def test_the_two_window_rules_differ_where_the_golden_cases_say_so() -> None:
    differing = [name for name in BLOCK_CASES if "p2.trainwin.hidden" in golden(name).vectors]
    assert differing == ["dflash_qwen3", "dspark_qwen3", "dspark_llama_rnn"]


@pytest.mark.parametrize("name", ENTRY_CASES)
def test_entry_drafters(name: str, make: Make) -> None:
    case, engine = golden(name), make(name, "serving")
    config = engine.pair.drafter
    assert config is not None
    for prompt in PROMPTS:
        row, out = run_prompt(engine, case, prompt)
        assert_golden(out["probe.drafter.logits"][0], case.get(prompt, "logits"), "logits")
        assert out["draft_ids"][0].tolist() == case.get(prompt, "draft_tokens").tolist()
        if not name.startswith("peagle"):
            continue
        assert_golden(out["probe.drafter.g"], case.get(prompt, "g"), "g")
        assert_golden(out["probe.drafter.embed"], case.get(prompt, "embed"), "embed")
        assert_golden(out["probe.drafter.hidden"], case.get(prompt, "hidden"), "hidden")
        last = config.num_cache_layers - 1
        assert_golden(out["probe.drafter.entries"], case.get(prompt, f"layer.{last}"), "layer")
        for layer in range(config.num_cache_layers):
            for part, kind in enumerate("kv"):
                want = case.get(prompt, f"{kind}.{layer}")[:, : len(row.prompt)]
                assert_golden(cached(engine, row, layer, part), want, kind)


@pytest.mark.parametrize("chunk", [7, 1])
@pytest.mark.parametrize("name", [*BLOCK_CASES, *ENTRY_CASES])
def test_drafts_do_not_depend_on_how_the_prompt_was_cut(name: str, chunk: int, make: Make) -> None:
    case, engine = golden(name), make(name, "serving")
    for number, prompt in enumerate(PROMPTS):
        tokens = [int(token) for token in case.get(prompt, "prompt_ids")]
        row = Row(tokens, pages=[40 + 4 * number + page for page in range(4)])
        while row.context + chunk < len(tokens):
            engine.step([row], [Feed(tokens[row.context : row.context + chunk])])
            row.context += chunk
        out = engine.step([row], [Feed(tokens[row.context :], num_verify=1, draft=True)])
        assert out["draft_ids"][0].tolist() == case.get(prompt, "draft_tokens").tolist()
