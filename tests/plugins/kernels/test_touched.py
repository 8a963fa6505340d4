# SPDX-License-Identifier: Apache-2.0
"""What the kernels read and write, address by address: nothing out of bounds, each K and V element in range once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from build_scripts.gpu_check import cases, checks, table
from build_scripts.gpu_check.cases import PagedCase, Place, SampleCase, ScanCase, SharedCase
from build_scripts.gpu_check.source_ops import SourceOps
from tests.plugins.kernels.watched import Touched, WatchedRunner, _watching

CHECKS = {
    PagedCase: checks.check_paged,
    SharedCase: checks.check_shared,
    ScanCase: checks.check_scan,
    SampleCase: checks.check_sample,
}
EVERY = (*table.ODD_PAGED, *table.ODD_SHARED[:10], *table.ODD_SCAN, *table.ODD_SAMPLE)


@pytest.mark.parametrize("case", EVERY, ids=lambda case: f"{type(case).__name__}-{case.name}".replace(" ", "-"))
def test_nothing_out_of_bounds(case: PagedCase | SharedCase | ScanCase | SampleCase) -> None:
    runner = WatchedRunner()
    outcome = CHECKS[type(case)](SourceOps(runner), case, Place(dtype=torch.float16))  # type: ignore[operator]
    assert outcome.passed, outcome
    assert runner.launches and runner.stray == []


def _keys(context: int, queries: int, window: int) -> int:
    return min(context + queries, window + queries - 1) if window else context + queries


@pytest.mark.parametrize(
    "case",
    [
        PagedCase("one split", ((70, 4), (0, 1), (128, 3), (9, 0)), 8, 2, 64, 32),
        PagedCase("splits", ((70, 4), (300, 1)), 3, 1, 80, 16, splits=4),
        PagedCase("window", ((200, 4), (3, 2)), 4, 1, 16, 128, window=70, splits=2),
    ],
    ids=lambda case: case.name,
)
def test_verification_reads_each_key_and_value_once(case: PagedCase) -> None:
    runner = WatchedRunner()
    assert checks.check_paged(SourceOps(runner), case, Place(dtype=torch.float16)).passed
    keys = sum(_keys(context, queries, case.window) for context, queries in case.rows if queries)
    minimum = keys * 2 * case.num_kv_heads * case.head_dim
    assert runner.touched_by("verify_attention").read_counts("kv_pages") == (minimum, minimum)


@pytest.mark.parametrize(
    "case",
    [
        SharedCase("one split", (70, 0, 33), 8, 6, 2, 64, 16),
        SharedCase("splits and a window", (300, 20), 6, 3, 1, 16, 16, window=64, splits=3),
    ],
    ids=lambda case: case.name,
)
def test_draft_attention_reads_each_key_and_value_once(case: SharedCase) -> None:
    runner = WatchedRunner()
    assert checks.check_shared(SourceOps(runner), case, Place(dtype=torch.float16)).passed
    context = sum(min(prefix, case.window - 1) if case.window else prefix for prefix in case.prefixes)
    width = case.num_kv_heads * case.head_dim
    touched = runner.touched_by("shared_kv_attention")
    assert touched.read_counts("kv_pages") == (context * 2 * width, context * 2 * width)
    for name in ("key", "value"):
        block = len(case.prefixes) * case.block * width
        assert touched.read_counts(name) == (block, block)


def test_without_context_the_pages_are_not_read() -> None:
    runner = WatchedRunner()
    case = SharedCase("no context", (70, 3), no_context=True)
    assert checks.check_shared(SourceOps(runner), case, Place(dtype=torch.float16)).passed
    assert {"kv_pages", "page_table", "prefix_lens"}.isdisjoint(runner.touched_by("shared_kv_attention").reads)


def test_greedy_sampling_reads_each_logit_once() -> None:
    runner = WatchedRunner()
    case = SampleCase("greedy", (cases.RowOptions(),), rows_each=3, vocab_size=5000)
    assert checks.check_sample(SourceOps(runner), case, Place()).passed
    assert runner.touched_by("sample_scan").read_counts("logits") == (15_000, 15_000)
    for kernel in ("sample_filter", "sample_pick"):
        assert "logits" not in runner.touched_by(kernel).reads


@triton.jit
def _copy(source, target, COUNT: tl.constexpr):
    lane = tl.arange(0, COUNT)
    tl.store(target + lane, tl.load(source + lane))


def test_the_watch_sees_a_step_over_the_end() -> None:
    source, target = torch.zeros(3 * 8), torch.zeros(3 * 8)
    starts = np.array(sorted([source.data_ptr(), target.data_ptr()]))
    touched = Touched(("a", "b"), starts, starts + 15 * 4)
    with _watching(touched):
        _copy[(1,)](source, target, 16)
    assert len(touched.stray) == 2 and "60 bytes from" in touched.stray[0]
