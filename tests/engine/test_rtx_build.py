# SPDX-License-Identifier: Apache-2.0
"""TensorRT-RTX itself compiles the step of every drafter, without a GPU: plugin layers and aliasing."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hspec_trt.config.build import FEEDBACK, BuildConfig, EngineLimits
from hspec_trt.contract import OPS
from hspec_trt.engine import EngineReport, compile_engine, plan_engine, write_layers
from hspec_trt.native import TRT_PACKAGES
from tests.support.golden_drafters import load_case, pair_of
from tests.support.graph_engine import Pair, write_engine
from tests.support.plugin_build import plugin_library

pytestmark = pytest.mark.skipif(TRT_PACKAGES["tensorrt-rtx"].version is None, reason="tensorrt-rtx is not installed")

CASES = ("hspec_qwen3", "dflash_qwen3", "dspark_qwen3", "peagle_qwen3", "eagle3_qwen3")
CONFIG = BuildConfig(
    backend="tensorrt-rtx",
    dtype="float16",
    max_seq_len=256,
    max_batch_size=4,
    max_num_tokens=64,
    page_size=16,
    sm=(89,),
    extensions=(FEEDBACK,),
)


def golden(case: str) -> Pair:
    return pair_of(load_case(case))


def build(pair: Pair, config: BuildConfig, folder: Path) -> EngineReport:
    graph = write_engine(folder, pair, config)
    assert pair.drafter is not None
    limits = EngineLimits(4, 256, 64, 16, pair.drafter.num_drafts, config.settled_extensions)
    library = plugin_library() if config.plugins == "kernels" else None
    plan = plan_engine(graph.read_bytes(), limits, config, folder, plugin_library=library, allow_missing_kernels=True)
    files = (folder / "weights.safetensors", folder / "rank0.engine")
    return compile_engine(plan, *files, log=folder / "rank0.log", timing_cache=config.timing_cache)


@pytest.mark.parametrize("case", CASES)
def test_plugin_layers_and_pages_in_place(case: str, tmp_path: Path) -> None:
    pair = golden(case)
    report = build(pair, CONFIG, tmp_path)
    assert report.path.stat().st_size == report.nbytes > 100_000 and report.parsed is not None
    layers = report.parsed.plugin_layers
    count = Counter(layer.op for layer in layers)
    target, drafter = pair.target, pair.drafter
    assert drafter is not None
    assert count["PagedAttention"] >= target.num_layers and count["SampleTokens"] >= 1 and set(count) <= set(OPS)
    assert report.parsed.layer_counts["PLUGIN_V3"] == sum(count.values())
    # Every pool is written in place, and only pools are.
    aliased = dict(pair for layer in layers for pair in layer.aliased.items())
    assert len(aliased) >= target.num_layers + drafter.num_cache_layers
    assert {f"kv_pages.{layer}" for layer in range(target.num_layers)} <= set(aliased.values())
    paged = next(layer for layer in layers if layer.op == "PagedAttention")
    assert paged.fields == {
        "num_heads": target.num_heads,
        "num_kv_heads": target.num_kv_heads,
        "head_dim": target.head_dim,
        "page_size": 16,
        "scale": pytest.approx(target.head_dim**-0.5),
        "window": 0,
    }
    write_layers(report, tmp_path / "layers.json")
    assert json.loads((tmp_path / "layers.json").read_text())["plugin_layers"][0]["fields"]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_no_plugins(case: str, tmp_path: Path) -> None:
    """TensorRT's own layers take the place of every op; two drafts, for a smaller graph."""
    report = build(golden(case), replace(CONFIG, plugins="none", num_drafts=2), tmp_path)
    assert report.path.stat().st_size == report.nbytes > 100_000 and report.parsed is not None
    assert report.parsed.plugin_layers == ()
    assert "PLUGIN_V3" not in report.parsed.layer_counts


def test_bfloat16_for_several_gpus_with_a_timing_cache(tmp_path: Path) -> None:
    pair, cache = golden("hspec_qwen3"), tmp_path / "timing.cache"
    config = replace(CONFIG, dtype="bfloat16", sm=(80, 86, 89, 120), timing_cache=cache)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        report = build(pair, config, tmp_path / name)
        assert report.sm == (80, 86, 89, 120) and "[" in report.log.read_text()
        assert cache.stat().st_size > 0, "written, and read by the second build"
