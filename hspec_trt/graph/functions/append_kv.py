# SPDX-License-Identifier: Apache-2.0
"""Function body of ``AppendKv``: K and V of the packed tokens go to their places in the pages."""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.contract import APPEND_KV
from hspec_trt.graph.functions.common import OpFunction
from hspec_trt.graph.functions.paged_attention import appended_pages


def append_kv() -> ir.Function:
    """The op as standard nodes; shapes as in `hspec_trt.contract.APPEND_KV`."""
    f = OpFunction(APPEND_KV)
    return f.finish(appended_pages(f))
