# SPDX-License-Identifier: Apache-2.0
"""The custom ops as ONNX model-local functions of standard ops: their reference semantics."""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.graph.functions.append_kv import append_kv
from hspec_trt.graph.functions.mamba2_block_scan import mamba2_block_scan
from hspec_trt.graph.functions.paged_attention import paged_attention
from hspec_trt.graph.functions.sample_tokens import sample_tokens
from hspec_trt.graph.functions.shared_kv_attention import anchor_window_attention, shared_kv_attention


def op_functions(*, branches: bool) -> list[ir.Function]:
    """One function for each op of `hspec_trt.contract.OPS` and `hspec_trt.contract.FUNCTION_OPS`.

    Args:
        branches: let bodies use ``If``, which ONNX Runtime gains from and TensorRT should not see.
    """
    return [
        paged_attention(),
        append_kv(),
        shared_kv_attention(),
        anchor_window_attention(),
        mamba2_block_scan(),
        sample_tokens(branches=branches),
    ]


__all__ = [
    "anchor_window_attention",
    "append_kv",
    "mamba2_block_scan",
    "op_functions",
    "paged_attention",
    "sample_tokens",
    "shared_kv_attention",
]
