# SPDX-License-Identifier: Apache-2.0
"""Every kernel under Triton's interpreter against float64, over odd shapes, with poison around the data."""

from __future__ import annotations

import pytest
import torch

from build_scripts.gpu_check import checks, table
from build_scripts.gpu_check.cases import PagedCase, Place, SampleCase, ScanCase, SharedCase
from build_scripts.gpu_check.runners import TritonRunner
from build_scripts.gpu_check.source_ops import SourceOps

OPS = SourceOps(TritonRunner(multiprocessors=8))
# The interpreter computes bfloat16 wrongly; the arithmetic is the same, only the rounding of loads and stores differs.
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])


def _name(case: PagedCase | SharedCase | ScanCase | SampleCase) -> str:
    return case.name.replace(" ", "-")


def _assert_passed(outcome: checks.Outcome) -> None:
    assert outcome.passed, outcome


@DTYPES
@pytest.mark.parametrize("case", table.ODD_PAGED, ids=_name)
def test_paged_attention(case: PagedCase, dtype: torch.dtype) -> None:
    _assert_passed(checks.check_paged(OPS, case, Place(dtype=dtype)))


@DTYPES
@pytest.mark.parametrize("case", table.ODD_PAGED, ids=_name)
def test_append_kv(case: PagedCase, dtype: torch.dtype) -> None:
    _assert_passed(checks.check_append(OPS, case, Place(dtype=dtype)))


@DTYPES
@pytest.mark.parametrize("case", table.ODD_SHARED, ids=_name)
def test_shared_kv_attention(case: SharedCase, dtype: torch.dtype) -> None:
    _assert_passed(checks.check_shared(OPS, case, Place(dtype=dtype)))


@DTYPES
@pytest.mark.parametrize("case", table.ODD_SCAN, ids=_name)
def test_mamba2_block_scan(case: ScanCase, dtype: torch.dtype) -> None:
    _assert_passed(checks.check_scan(OPS, case, Place(dtype=dtype)))


@pytest.mark.parametrize("case", table.ODD_SAMPLE, ids=_name)
def test_sample_tokens(case: SampleCase) -> None:
    _assert_passed(checks.check_sample(OPS, case, Place()))
