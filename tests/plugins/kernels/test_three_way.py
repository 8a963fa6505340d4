# SPDX-License-Identifier: Apache-2.0
"""Kernel under the interpreter = ONNX function in ONNX Runtime, over the same table of odd shapes.

`test_odd_shapes` holds the kernels to float64 and `test_golden` both of them to the golden vectors, which closes the
triangle. Here, pages hold finite values, as the contract promises the function.
"""

from __future__ import annotations

import pytest
import torch

from build_scripts.gpu_check import cases, reference, table
from build_scripts.gpu_check.cases import PagedCase, Place, SampleCase, ScanCase, SharedCase
from build_scripts.gpu_check.checks import SCORE_BOUND
from build_scripts.gpu_check.ops import AttentionShape
from build_scripts.gpu_check.runners import TritonRunner
from build_scripts.gpu_check.source_ops import SourceOps
from hspec_trt.dtypes import FLOAT16, FLOAT32, DType
from tests.plugins.kernels.onnx_function import run_function
from tests.support.tolerance import assert_close

OPS = SourceOps(TritonRunner(multiprocessors=8))
OUR_DTYPE = {torch.float32: FLOAT32, torch.float16: FLOAT16}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])


def _name(case: PagedCase | SharedCase | ScanCase | SampleCase) -> str:
    return case.name.replace(" ", "-")


def _attributes(shape: AttentionShape) -> dict[str, int | float]:
    names = ("num_heads", "num_kv_heads", "head_dim", "page_size", "scale", "window")
    return {name: getattr(shape, name) for name in names}


def _assert_same(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    ours: DType = OUR_DTYPE[dtype]
    assert_close(got.float().numpy(), want.float().numpy(), ours)


@DTYPES
@pytest.mark.parametrize("case", table.ODD_PAGED, ids=_name)
def test_paged_attention(case: PagedCase, dtype: torch.dtype) -> None:
    inputs = cases.paged_inputs(case, Place(dtype=dtype), poison=7.0)
    step, pages = inputs.step, inputs.kv_pages.clone()
    tensors = (inputs.query, inputs.key, inputs.value, pages)
    got = OPS.paged_attention(case.shape, step, *tensors, verify_width=case.verify_width, splits=case.splits)
    want, want_pages = run_function(
        "PagedAttention",
        {
            "query": inputs.query, "key": inputs.key, "value": inputs.value, "kv_pages": inputs.kv_pages,
            "cu_query_lens": step.cu_query_lens, "context_lens": step.context_lens, "page_table": step.page_table,
            "query_slots": step.query_slots, "token_rows": step.token_rows, "token_positions": step.token_positions,
        },
        **_attributes(case.shape),
    )  # fmt: skip
    real = step.token_rows < step.rows
    _assert_same(got[real], want[real], dtype)
    assert torch.equal(pages[1:], want_pages[1:])


@DTYPES
@pytest.mark.parametrize("case", table.ODD_SHARED, ids=_name)
def test_shared_kv_attention(case: SharedCase, dtype: torch.dtype) -> None:
    inputs = cases.shared_inputs(case, Place(dtype=dtype), poison=7.0)
    tensors = (inputs.query, inputs.key, inputs.value, inputs.kv_pages, inputs.page_table, inputs.prefix_lens)
    kind = {"causal": case.causal, "no_context": case.no_context}
    got = OPS.shared_kv_attention(case.shape, *tensors, splits=case.splits, **kind)
    names = ("query", "key", "value", "kv_pages", "page_table", "prefix_lens")
    flags = {name: int(value) for name, value in kind.items()}
    (want,) = run_function(
        "SharedKvAttention", dict(zip(names, tensors, strict=True)), **_attributes(case.shape), **flags
    )
    _assert_same(got, want, dtype)


@DTYPES
@pytest.mark.parametrize("case", table.ODD_SCAN, ids=_name)
def test_mamba2_block_scan(case: ScanCase, dtype: torch.dtype) -> None:
    inputs = cases.scan_inputs(case, Place(dtype=dtype))
    got = OPS.mamba2_block_scan(case.shape, inputs.xbc, inputs.dt, inputs.weights, inputs.state)
    tensors = {"xbc": inputs.xbc, "dt": inputs.dt, **vars(inputs.weights), "state": inputs.state}
    (want,) = run_function("Mamba2BlockScan", tensors, **vars(case.shape))
    _assert_same(got, want, dtype)


@pytest.mark.parametrize("case", table.ODD_SAMPLE, ids=_name)
def test_sample_tokens(case: SampleCase) -> None:
    inputs = cases.sample_inputs(case, Place())
    options = inputs.options
    got = OPS.sample_tokens(inputs.logits, inputs.token_ids, inputs.row_ids, inputs.positions, options)
    want = run_function(
        "SampleTokens",
        {
            "logits": inputs.logits, "token_ids": inputs.token_ids, "row_ids": inputs.row_ids,
            "positions": inputs.positions, **vars(options),
        },
    )  # fmt: skip
    assert torch.equal(got[2], want[2])
    for k in (got[0] != want[0]).nonzero().flatten().tolist():
        row, position = int(inputs.row_ids[k]), int(inputs.positions[k])
        scores = reference.sample_scores(inputs.logits[k], inputs.token_ids, row, position, options)
        pair = [float(scores[inputs.token_ids == ids[k]]) for ids in (got[0], want[0])]
        assert abs(pair[0] - pair[1]) <= SCORE_BOUND, f"row {k}: {got[0][k]} and {want[0][k]} score {pair}"
    same = got[0] == want[0]
    assert same.any()
    _assert_same(got[1][same], want[1][same], torch.float32)
