# SPDX-License-Identifier: Apache-2.0
"""H-Spec configurations that no golden case has, against the PyTorch reference: rows, odd windows, ablations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hspec_trt.config.build import BuildConfig
from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.modeling.block import BlockInputs, SharedTables
from hspec_trt.modeling.hspec import HSpecModel
from tests.support.graph_engine import ArraySource, Engine, Feed, Pair, Row, write_engine
from tests.support.tiny_models import ROPES, TinyTarget
from tests.support.tiny_pair import tiny_pair
from tests.support.tolerance import assert_golden

TARGETS = {
    "llama": TinyTarget(std=0.1, rope=ROPES["llama3"]),
    "qwen3": TinyTarget(family="qwen3", std=0.1, tied=True, num_kv_heads=1),
}
RECIPE = ("mamba", "mlp", "mamba", "attention", "mlp", "mamba", "attention", "mlp")
VARIANTS: dict[str, dict[str, object]] = {
    "recipe": {},
    "per layer": {"seed_mode": "per_layer", "mamba_n_groups": 2},
    "once": {"seed_mode": "once"},
    "normed fusion": {"fc_norm": True, "fused_layers": (4, 0, 2)},
    "no seed": {"state_injection": False},
    "no context": {"target_kv_reuse": False},
    "neither": {"state_injection": False, "target_kv_reuse": False},
    "mixed windows": {"attn_windows": (0, 6)},
    "full": {"attn_windows": (0, 0)},
    "window of 1": {"attn_windows": (1, 3)},
    "no q/k norms": {"use_qk_norm": False},
    "biases": {"attention_bias": True},
    "no Markov": {"markov_rank": 0},
    "reduced": {"draft_vocab_size": 20},
    "reduced, no Markov": {"draft_vocab_size": 20, "markov_rank": 0},
    "mamba only": {"block_pattern": ("mamba", "mlp", "mamba", "mlp"), "attn_kv_layers": (), "attn_windows": ()},
    "attention only": {
        "block_pattern": ("mlp", "attention", "mlp", "attention", "mlp"),
        "state_injection": False,
        "fused_layers": (),
    },
    "short convolution": {"mamba_conv_kernel": 2},
    "one layer twice": {"attn_kv_layers": (2, 2)},
}
PROMPTS = (1, 17, 40)


def config_for(target: TargetConfig, changes: dict[str, object]) -> HSpecConfig:
    base = HSpecConfig(
        kind="hspec",
        vocab_size=target.vocab_size,
        draft_vocab_size=target.vocab_size,
        hidden_size=target.hidden_size,
        intermediate_size=96,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        rms_norm_eps=target.rms_norm_eps,
        rope=target.rope,
        block_size=6,
        num_drafts=5,
        mask_token_id=60,
        fused_layers=(1, 3),
        max_position=target.max_position,
        block_pattern=RECIPE,
        attn_kv_layers=(3, 1),
        attn_windows=(10, 10),
        mamba_num_heads=4,
        mamba_head_dim=8,
        mamba_d_state=4,
        seed_mode="shared",
        markov_rank=8,
    )
    return replace(base, **changes)


def reference(pair: Pair, config: HSpecConfig) -> HSpecModel:
    """The PyTorch drafter with random weights and head rows of its own."""
    torch.manual_seed(0)
    embedding = torch.from_numpy(np.array(pair.target_tensors["model.embed_tokens.weight"].read()))
    ids = torch.arange(config.draft_vocab_size) * (config.vocab_size // config.draft_vocab_size)
    model = HSpecModel(config, SharedTables(embedding, torch.randn(config.draft_vocab_size, config.hidden_size), ids))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = torch.randn_like(parameter) * (0.05 if parameter.dim() == 1 else 0.15)
            parameter.copy_(1.0 + spread if "norm" in name else spread)
    return model.eval()


def drafter_tensors(model: HSpecModel) -> dict[str, ArraySource]:
    tensors = {name: ArraySource(values.numpy()) for name, values in model.state_dict().items()}
    tensors["lm_head.weight"] = ArraySource(model.head.numpy())
    if model.config.reduced_vocab:
        ids = model.target_ids
        tensors["d2t"] = ArraySource((ids - torch.arange(len(ids))).numpy())
    return tensors


def block_inputs(engine: Engine, config: HSpecConfig, rows: list[Row], out: dict[str, np.ndarray]) -> BlockInputs:
    """What the graph's drafter was given, for the reference: states and pages as the target left them."""
    lens = [len(row.prompt) for row in rows]
    last, width = np.cumsum(lens) - 1, max(lens)
    states = [torch.from_numpy(out[f"probe.target.hidden.{layer}"][last]) for layer in config.fused_layers]

    def context(layer: int, part: int) -> torch.Tensor:
        pages = engine.page_values(layer)
        joined = [np.concatenate(list(pages[row.pages, part]), axis=1)[:, :width] for row in rows]
        return torch.from_numpy(np.stack(joined)).transpose(1, 2)

    layers = set(config.attn_kv_layers)
    return BlockInputs(
        anchor_ids=torch.from_numpy(out["emitted_ids"][:, :1].astype(np.int64)),
        anchors=torch.tensor(lens)[:, None],
        fused=torch.cat(states, dim=-1)[:, None] if states else torch.empty(len(rows), 1, 0),
        keys={layer: context(layer, 0) for layer in layers},
        values={layer: context(layer, 1) for layer in layers},
    )


def run_graph(folder: Path, pair: Pair, num_drafts: int) -> tuple[Engine, list[Row], dict[str, np.ndarray]]:
    build = BuildConfig(page_size=16, num_drafts=num_drafts)
    engine = Engine(write_engine(folder, pair, build, probes=True), pair, build, num_pages=16)
    rng = np.random.default_rng(5)
    rows = [
        Row(rng.integers(0, 60, length).tolist(), pages=[3 * index + 1, 3 * index + 3, 3 * index + 2])
        for index, length in enumerate(PROMPTS)
    ]
    return engine, rows, engine.step(rows, [Feed(row.prompt, num_verify=1, draft=True) for row in rows])


@pytest.mark.parametrize("family", TARGETS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_variant_equals_the_reference(variant: str, family: str, tmp_path: Path) -> None:
    pair = tiny_pair(tmp_path / "target", TARGETS[family])
    config = config_for(pair.target, VARIANTS[variant])
    model = reference(pair, config)
    pair = replace(pair, drafter=config, drafter_tensors=drafter_tensors(model))
    engine, rows, out = run_graph(tmp_path / "engine", pair, config.num_drafts)

    inputs = block_inputs(engine, config, rows, out)
    with torch.no_grad():
        hidden = model.hidden(inputs)
        drafts = model.draft(inputs)
    block = out["probe.drafter.hidden"].shape[1]
    assert block == config.block_size
    assert_golden(out["probe.drafter.hidden"], hidden[:, 0].numpy(), "hidden")
    assert_golden(out["probe.drafter.logits_base"], model.logits(hidden)[:, 0, 1:].detach().numpy(), "base logits")
    assert_golden(out["probe.drafter.logits_final"], drafts.logits[:, 0].numpy(), "final logits")
    assert out["draft_ids"].tolist() == drafts.target_ids[:, 0].tolist()


@pytest.mark.parametrize(("variant", "block"), [("recipe", 4), ("mixed windows", 6), ("full", 6)])
def test_fewer_drafts_are_the_first_ones(variant: str, block: int, tmp_path: Path) -> None:
    """Slots beyond the last draft run only where the others may look at them."""
    pair = tiny_pair(tmp_path / "target", TARGETS["qwen3"])
    config = config_for(pair.target, VARIANTS[variant])
    pair = replace(pair, drafter=config, drafter_tensors=drafter_tensors(reference(pair, config)))
    _, _, whole = run_graph(tmp_path / "five", pair, 5)
    _, _, fewer = run_graph(tmp_path / "three", pair, 3)
    assert fewer["probe.drafter.hidden"].shape[1] == block
    assert fewer["draft_ids"].tolist() == whole["draft_ids"][:, :3].tolist()


@pytest.mark.parametrize("own_table", [False, True])
def test_mask_row_of_the_drafter(own_table: bool, tmp_path: Path) -> None:
    """A drafter whose table differs in the mask token's row only, or altogether."""
    pair = tiny_pair(tmp_path / "target", TARGETS["llama"])
    config = config_for(pair.target, {})
    model = reference(pair, config)
    model.embedding[60] = torch.randn(config.hidden_size)
    if own_table:
        model.embedding[:] = torch.randn_like(model.embedding)
    tensors = drafter_tensors(model) | {"embed_tokens.weight": ArraySource(model.embedding.numpy())}
    pair = replace(pair, drafter=config, drafter_tensors=tensors)
    engine, rows, out = run_graph(tmp_path / "engine", pair, config.num_drafts)
    with torch.no_grad():
        drafts = model.draft(block_inputs(engine, config, rows, out))
    assert out["draft_ids"].tolist() == drafts.target_ids[:, 0].tolist()
