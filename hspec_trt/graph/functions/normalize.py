# SPDX-License-Identifier: Apache-2.0
"""Log-softmax in two parts, for those who need a few of its values only."""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.graph.builder import Builder


def normalized(g: Builder, logits: ir.Value, *, precise: bool) -> tuple[ir.Value, ir.Value]:
    """Logits minus the row's best, and the log of the sum of their exponentials: float32 [rows, V] and [rows, 1].

    A log-probability is the difference of the two.

    Args:
        logits: float32 [rows, V].
        precise: take the logarithm in float64. ONNX Runtime's float32 Log gives other last bits in the tail of a
            tensor, so that a log-probability would depend on the number of rows.
    """
    shifted = g.op("Sub", logits, g.reduce("ReduceMax", logits, 1))
    # ReduceLogSumExp is slower than these nodes in ONNX Runtime.
    total = g.reduce("ReduceSum", g.op("Exp", shifted), 1)
    if not precise:
        return shifted, g.op("Log", total)
    return shifted, g.cast(g.op("Log", g.cast(total, ir.DataType.DOUBLE)), ir.DataType.FLOAT)
