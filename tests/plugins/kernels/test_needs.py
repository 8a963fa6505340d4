# SPDX-License-Identifier: Apache-2.0
"""Which variants an engine needs: read from its graph, nothing typed; and limits of the launch geometry."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build_scripts.engine_needs import need_from_text, needs_of_engine
from hspec_trt.config.build import BuildConfig
from hspec_trt.errors import BuildError
from plugins.kernels import geometry
from plugins.kernels.catalog import KERNELS
from plugins.kernels.needs import AppendNeed, PagedNeed, SampleNeed, ScanNeed, SharedNeed, faults, variants_for
from plugins.kernels.variants import SHARED_BYTES, Variant, tunings
from tests.support.golden_pair import hspec_pair
from tests.support.graph_engine import write_engine


@pytest.mark.parametrize("branches", [False, True])
def test_needs_of_a_graph(tmp_path: Path, branches: bool) -> None:
    pair = hspec_pair("hspec_qwen3")
    build = BuildConfig(backend="tensorrt-rtx", dtype="float16", page_size=16)
    needs = needs_of_engine(write_engine(tmp_path, pair, build, branches=branches))
    target, drafter = pair.target, pair.drafter
    assert drafter is not None
    width = drafter.num_drafts + 1
    group = target.num_heads // target.num_kv_heads
    scan = (
        drafter.mamba_num_heads, drafter.mamba_head_dim, drafter.mamba_d_state, drafter.mamba_n_groups,
        drafter.mamba_conv_kernel,
    )  # fmt: skip
    assert needs == [
        PagedNeed("float16", target.head_dim, group, 16, width),
        SampleNeed(target.vocab_size),
        ScanNeed("float16", *scan, width),
        SharedNeed("float16", drafter.head_dim, group, 16, width, causal=1),
        SampleNeed(drafter.draft_vocab_size),
    ]


def test_a_float32_engine_has_no_kernels(tmp_path: Path) -> None:
    path = write_engine(tmp_path, hspec_pair("hspec_qwen3").without_drafter(), BuildConfig(page_size=16))
    with pytest.raises(BuildError, match=r"B060.*float32"):
        needs_of_engine(path)


def test_needs_as_text() -> None:
    text = "paged:bfloat16,head_dim=128,group=4,page_size=64,verify_width=8"
    assert need_from_text(text) == PagedNeed("bfloat16", 128, 4, 64, 8)
    assert need_from_text("sample:vocab_size=32000") == SampleNeed(32000)
    with pytest.raises(BuildError, match="B060"):
        need_from_text("sample:vocab_size=262145")


def test_variants_of_the_released_recipe() -> None:
    needs = [
        PagedNeed("bfloat16", 128, 4, 64, 8),
        SharedNeed("bfloat16", 128, 4, 64, 8, causal=1),
        SharedNeed("bfloat16", 128, 4, 64, 8, causal=1, no_context=1),
        ScanNeed("bfloat16", 48, 64, 4, 4, 4, 8),
        SampleNeed(151936),
        SampleNeed(32000),
        AppendNeed("bfloat16", 128, 64),
    ]
    names = [(variant.kernel, variant.key) for variant in variants_for(needs)]
    assert names == [
        ("append_kv", (128, 0, 64)),
        ("append_kv", (128, 4, 64)),
        ("mamba2_block_scan", (48, 64, 4, 4, 4, 8)),
        ("merge_splits", (128, 0)),
        ("merge_splits", (128, 1)),
        ("prefill_attention", (128, 4, 64)),
        ("sample_filter", (16,)),
        ("sample_finish", ()),
        ("sample_pick", (16,)),
        ("sample_scan", (16,)),
        ("shared_kv_attention", (128, 4, 64, 32, 1, 0)),
        ("shared_kv_attention", (128, 4, 64, 32, 1, 1)),
        ("verify_attention", (128, 4, 64, 16)),
        ("verify_attention", (128, 4, 64, 32)),
    ]


def test_faults_name_every_limit() -> None:
    assert faults(PagedNeed("bfloat16", 64, 3, 16, 8)) == []
    assert len(faults(PagedNeed("float32", 512, 3, 48, 8))) == 3
    assert "128 x 128" in faults(ScanNeed("float16", 4, 128, 128, 1, 4, 8))[0]
    assert faults(ScanNeed("float16", 4, 64, 128, 1, 4, 8)) == []
    assert "3 groups" in faults(ScanNeed("float16", 4, 64, 16, 3, 4, 8))[0]
    assert "128 rows" in faults(SharedNeed("float16", 64, 16, 16, 16, 1))[0]


@pytest.mark.parametrize("sm", SHARED_BYTES)
def test_tunings_give_every_constant_of_the_kernel(sm: int) -> None:
    for spec in KERNELS.values():
        key = {"TILE": 128, "HEAD_DIM": 96, "GROUP": 8}
        variant = Variant(spec.name, "bfloat16", tuple(key.get(name, 1) for name in spec.key))
        options = tunings(variant, sm)
        assert len(options) == len({str(option) for option in options})
        for option in options:
            assert set(spec.key) <= set(option.constants)
            assert option.num_warps in (2, 4, 8, 16, 32)


sizes = st.integers(1, 300)


@given(rows=sizes, kv_heads=st.integers(1, 64), longest=st.integers(0, 1 << 20), multiprocessors=sizes)
def test_splits_stay_inside_the_workspace(rows: int, kv_heads: int, longest: int, multiprocessors: int) -> None:
    splits = geometry.num_splits(rows, kv_heads, longest, multiprocessors)
    assert 1 <= splits <= geometry.MAX_SPLITS
    assert splits == 1 or (splits - 1) * geometry.SPLIT_TOKENS < longest
    used = rows * 5 * (kv_heads * 4) * splits * (64 + 1)
    assert splits == 1 or used <= geometry.split_workspace_floats(4, 5, 64)


@given(group=st.integers(1, 128), width=st.integers(1, 128), longest=st.integers(1, 200))
def test_the_picked_tile_holds_the_rows_it_promises(group: int, width: int, longest: int) -> None:
    tiles = geometry.verify_tiles(group, width)
    tile = geometry.pick_tile(tiles, group, longest)
    assert tile in tiles and tile >= geometry.MIN_TILE
    if longest * group <= max(tiles):
        assert tile // group >= longest
    assert min(tile // group, longest) <= geometry.widest_query(group, longest)


@given(vocab=st.integers(1, 262_144), rows=sizes)
def test_sample_workspace_starts_each_tensor_on_256_bytes(vocab: int, rows: int) -> None:
    plan = geometry.SampleWorkspace(rows, vocab)
    assert geometry.sample_chunks(vocab) <= geometry.MAX_CHUNKS
    assert plan.nbytes % 256 == 0
    assert plan.nbytes >= sum(nbytes for _, nbytes in plan.tensors)
