# SPDX-License-Identifier: Apache-2.0
"""The formulas of memory and traffic against tensors that exist, and against published sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.checkpoint.target import load_target
from hspec_trt.config.build import BuildConfig
from hspec_trt.config.drafter import DrafterConfig, HSpecConfig
from hspec_trt.config.drafters_block import DFlashConfig, DSparkConfig
from hspec_trt.config.drafters_eagle import NO_MASK_TOKEN, Eagle3Config, PEagleConfig
from hspec_trt.config.rope import RopeConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.dtypes import BFLOAT16, FLOAT32
from hspec_trt.memory import drafter_parameters, kv_cost, memory_lines, target_parameters
from tests.support.golden_drafters import GOLDEN, target_folder
from tests.support.graph_engine import Engine, Feed, Pair, Row, write_engine

CASES = sorted(path.parent.name for path in GOLDEN.glob("*/drafter"))
PAGE_SIZE = 16


def opened(case: str) -> Pair:
    target = load_target(target_folder(case))
    drafter = load_drafter(GOLDEN / case / "drafter", target)
    return Pair(target.config, target.tensors, drafter.config, drafter.tensors)


def elements(arrays: dict[str, np.ndarray]) -> int:
    return sum(array.size for name, array in arrays.items() if name not in ("d2t", "t2d"))


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_those_of_the_checkpoints(case: str) -> None:
    pair = opened(case)
    assert pair.drafter is not None
    assert target_parameters(pair.target).total == elements(load_file(target_folder(case) / "model.safetensors"))
    arrays = load_file(GOLDEN / case / "drafter" / "model.safetensors")
    counted = drafter_parameters(pair.drafter)
    assert counted.total == elements(arrays)
    assert counted.embedding == arrays["embed_tokens.weight"].size
    assert counted.head == arrays["lm_head.weight"].size
    heads = {name: array for name, array in arrays.items() if name.startswith(("markov_head.", "confidence_head."))}
    assert counted.heads == elements(heads)


@pytest.mark.parametrize("case", CASES)
def test_page_bytes_are_what_an_engine_allocates(case: str, tmp_path: Path) -> None:
    pair, build = opened(case), BuildConfig(page_size=PAGE_SIZE)
    engine = Engine(write_engine(tmp_path, pair, build), pair, build, num_pages=12)
    cost = kv_cost(pair.target, pair.drafter, FLOAT32)
    assert sum(pages.numpy().nbytes for pages in engine.pages) == 12 * cost.page_bytes(PAGE_SIZE)


@pytest.mark.parametrize("case", CASES)
def test_a_step_writes_what_the_formula_says(case: str, tmp_path: Path) -> None:
    """Every float of the row's places changes, and none beyond; drafting leaves nothing behind."""
    pair, build = opened(case), BuildConfig(page_size=PAGE_SIZE)
    engine = Engine(write_engine(tmp_path, pair, build), pair, build, num_pages=12)
    for pages in engine.pages:
        pages.numpy()[...] = 777.0
    tokens = [3, 1, 4, 1, 5]
    engine.step([Row(tokens, pages=[5, 2])], [Feed(tokens, num_verify=1, draft=True)])
    changed = sum(int((pages.numpy() != 777.0).sum()) for pages in engine.pages)
    cost = kv_cost(pair.target, pair.drafter, FLOAT32)
    assert changed * FLOAT32.itemsize == cost.written_per_step(len(tokens))


def test_requests_that_fit_are_those_that_the_pool_holds() -> None:
    pair = opened("dflash_qwen3")
    cost = kv_cost(pair.target, pair.drafter, FLOAT32)
    page = cost.page_bytes(PAGE_SIZE)
    for requests in (0, 1, 5):
        need = page * (1 + requests * 3)  # the null page, and three pages for 33 to 48 tokens each
        for tokens in (33, 48):
            assert cost.requests_that_fit(need, tokens, PAGE_SIZE) == requests
            assert cost.requests_that_fit(need + 3 * page - 1, tokens, PAGE_SIZE) == requests
    assert cost.requests_that_fit(0, 33, PAGE_SIZE) == 0


# Qwen3-8B and the drafters published for it: sizes in millions of parameters, bytes per token in bfloat16.
QWEN3_8B = TargetConfig(
    family="qwen3",
    vocab_size=151_936,
    embedding_rows=151_936,
    hidden_size=4096,
    intermediate_size=12_288,
    num_layers=36,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    rms_norm_eps=1e-6,
    rope=RopeConfig(theta=1e6),
    max_position=40_960,
)
SHAPE = {
    "vocab_size": 151_936,
    "draft_vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 12_288,
    "num_heads": 32,
    "num_kv_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope": RopeConfig(theta=1e6),
    "mask_token_id": 151_669,
    "max_position": 40_960,
}
BLOCK = {
    "block_size": 8,
    "num_drafts": 7,
    "fused_layers": (2, 10, 18, 26, 34),
    "windows": (2048,) * 5,
    "causal": (True,) * 5,
}
PUBLISHED: dict[str, tuple[DrafterConfig, float, int]] = {
    "dflash": (DFlashConfig(kind="dflash", **SHAPE, **BLOCK), 1048.6, 20_480),
    "dspark": (
        DSparkConfig(
            kind="dspark", **SHAPE, **BLOCK, markov_rank=256, confidence_head=True, confidence_with_markov=True
        ),
        1095.7,
        20_480,
    ),
    "peagle": (
        PEagleConfig(
            kind="peagle", **SHAPE, block_size=8, num_drafts=8, fused_layers=(2, 18, 33), windows=(0,) * 4, qk_norm=True
        ),
        847.3,
        16_384,
    ),
    "eagle3": (
        Eagle3Config(
            kind="eagle3",
            **(SHAPE | {"mask_token_id": NO_MASK_TOKEN}),
            block_size=1,
            num_drafts=7,
            fused_layers=(2, 18, 33),
            windows=(0,),
        ),
        268.5,
        4096,
    ),
    "hspec": (
        HSpecConfig(
            kind="hspec",
            **SHAPE,
            block_size=8,
            num_drafts=7,
            fused_layers=(1, 9, 17, 25, 34),
            block_pattern=("mamba", "mlp", *("mamba", "attention", "mlp") * 3),
            attn_kv_layers=(17, 25, 34),
            attn_windows=(2048,) * 3,
            mamba_num_heads=48,
            mamba_d_state=4,
            mamba_n_groups=4,
            seed_mode="shared",
            markov_rank=256,
            confidence_head=True,
            confidence_with_markov=True,
        ),
        1063.6,
        0,
    ),
}


@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_sizes(kind: str) -> None:
    config, millions, per_token = PUBLISHED[kind]
    counted = drafter_parameters(config)
    assert (counted.layers + counted.heads) / 1e6 == pytest.approx(millions, abs=0.06)
    cost = kv_cost(QWEN3_8B, config, BFLOAT16)
    assert (cost.target_per_token, cost.drafter_per_token) == (147_456, per_token)
    assert cost.drafter_per_request == 0


def test_scratch_of_a_draft_pass() -> None:
    scratch = {kind: kv_cost(QWEN3_8B, config, BFLOAT16).scratch_per_row for kind, (config, _, _) in PUBLISHED.items()}
    assert scratch["hspec"] == 8 * 12_288 + 49_152
    assert scratch["dflash"] == scratch["dspark"] == 8 * 20_480
    assert scratch["peagle"] == 7 * 16_384
    assert scratch["eagle3"] == 6 * 4096


def test_a_cache_of_its_own_costs_requests() -> None:
    fitting = {
        kind: kv_cost(QWEN3_8B, config, BFLOAT16).requests_that_fit(16 << 30, 4096, 64)
        for kind, (config, _, _) in PUBLISHED.items()
    }
    assert fitting == {"dflash": 24, "dspark": 24, "peagle": 25, "eagle3": 27, "hspec": 28}


def test_lines_for_people() -> None:
    lines = memory_lines(QWEN3_8B, PUBLISHED["dflash"][0], BFLOAT16, 64)
    assert lines["KV per token, target"] == "147,456 B"
    assert lines["KV per token, drafter"] == "20,480 B"
    assert lines["written per step and row"] == f"{8 * 167_936:,} B (8 tokens)"
    assert "drafter parameters" not in memory_lines(QWEN3_8B, None, BFLOAT16, 64)
