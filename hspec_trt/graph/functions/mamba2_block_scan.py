# SPDX-License-Identifier: Apache-2.0
"""Function body of ``Mamba2BlockScan``: short causal convolution, then the selective scan over one block.

The scan is evaluated in the quadratic form of state space duality (Dao and Gu, arXiv 2405.21060), one chunk, float32:
with ``l_i`` the running sum of ``dt_j A``,
``y_i = sum_{j<=i} (C_i . B_j) exp(l_i - l_j) dt_j x_j + exp(l_i) S_0 C_i + D x_i``.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from hspec_trt.contract import MAMBA2_BLOCK_SCAN
from hspec_trt.graph.functions.common import MASKED, OpFunction, grouped_heads, product


def mamba2_block_scan() -> ir.Function:
    """The op as standard nodes; shapes as in `hspec_trt.contract.MAMBA2_BLOCK_SCAN`."""
    f = OpFunction(MAMBA2_BLOCK_SCAN)
    g = f.builder
    rows, block, heads = g.dim(f["xbc"], 0), f.dim("block_size"), f.dim("num_heads")
    groups, head_dim, size = f.dim("n_groups"), f.dim("head_dim"), f.dim("state_size")
    per_group = grouped_heads(g, f["num_heads"], groups)
    x, b, c = _split(f, _convolved(f))
    step = g.op("Add", g.cast(f["dt"], ir.DataType.FLOAT), f["dt_bias"])
    step = g.op("Transpose", _softplus(f, step), perm=[0, 2, 1])  # [D, h, B]
    decay = g.op("Neg", g.op("Exp", f["a_log"]))
    elapsed = g.op("CumSum", g.op("Mul", step, g.unsqueeze(decay, 1)), g.i64(2))  # l_i, [D, h, B]

    x = g.op("Transpose", g.reshape(x, rows, block, heads, head_dim), perm=[0, 2, 1, 3])  # [D, h, B, p]
    b = g.op("Transpose", b, perm=[0, 2, 3, 1])  # [D, g, n, B]
    c = g.op("Transpose", c, perm=[0, 2, 1, 3])  # [D, g, B, n]
    similar = g.unsqueeze(g.op("MatMul", c, b), 2)  # [D, g, 1, B, B], the same for all heads of a group
    fading = g.reshape(_fading(f, elapsed), rows, groups, per_group, block, block)
    mix = g.reshape(g.op("Mul", similar, fading), rows, heads, block, block)
    inside = g.op("MatMul", mix, g.op("Mul", x, g.unsqueeze(step, 3)))

    state = g.reshape(f["state"], rows, groups, per_group, head_dim, size)
    state = g.op("Transpose", state, perm=[0, 1, 2, 4, 3])  # [D, g, h / g, n, p]
    seen = g.reshape(g.op("MatMul", g.unsqueeze(c, 2), state), rows, heads, block, head_dim)
    seen = g.op("Mul", seen, g.unsqueeze(g.op("Exp", elapsed), 3))
    skip = g.op("Mul", x, g.unsqueeze(f["d"], 1, 2))
    y = g.op("Transpose", g.op("Add", g.op("Add", inside, seen), skip), perm=[0, 2, 1, 3])
    width = product(g, heads, head_dim)
    return f.finish(g.op("CastLike", g.reshape(y, rows, block, width), f["xbc"]))


def _softplus(f: OpFunction, value: ir.Value) -> ir.Value:
    """log(1 + exp(v)) without overflow: max(v, 0) + log(1 + exp(-|v|))."""
    g = f.builder
    small = g.op("Log", g.op("Add", g.op("Exp", g.op("Neg", g.op("Abs", value))), g.f32(1.0)))
    return g.op("Add", g.op("Relu", value), small)


def _convolved(f: OpFunction) -> ir.Value:
    """silu(conv(xbc)) in float32, [D, B, conv_dim]; the history before the block is zero."""
    g = f.builder
    xbc = g.cast(f["xbc"], ir.DataType.FLOAT)
    rows, width = g.dim(xbc, 0), g.dim(xbc, 2)
    taps = f.dim("conv_kernel")
    empty = g.op("Expand", g.f32(0.0), g.shape(rows, taps, width))
    padded = g.op("Concat", empty, xbc, axis=1)  # one line more than needed: offsets below start at 1
    window = g.op("Add", g.unsqueeze(g.iota(f.dim("block_size")), 1), g.unsqueeze(g.iota(taps), 0))
    history = g.op("Gather", padded, g.op("Add", window, g.i64(1)), axis=1)  # [D, B, k, conv_dim]
    weight = g.op("Transpose", g.cast(f["conv_weight"], ir.DataType.FLOAT), perm=[1, 2, 0])  # [1, k, conv_dim]
    total = g.reduce("ReduceSum", g.op("Mul", history, weight), 2, keepdims=False)
    total = g.op("Add", total, g.cast(f["conv_bias"], ir.DataType.FLOAT))
    return g.op("Mul", total, g.op("Sigmoid", total))


def _split(f: OpFunction, convolved: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """x [D, B, h * p], B and C [D, B, g, n]."""
    g = f.builder
    inner = product(g, f.dim("num_heads"), f.dim("head_dim"))
    x = g.op("Slice", convolved, g.i64([0]), inner, g.i64([2]))
    rest = g.op("Slice", convolved, inner, g.i64([np.iinfo(np.int64).max]), g.i64([2]))
    rest = g.reshape(rest, g.dim(f["xbc"], 0), f.dim("block_size"), 2, f.dim("n_groups"), f.dim("state_size"))
    return x, g.op("Gather", rest, g.i64(0), axis=2), g.op("Gather", rest, g.i64(1), axis=2)


def _fading(f: OpFunction, elapsed: ir.Value) -> ir.Value:
    """exp(l_i - l_j) for j <= i, else 0: [D, h, B, B]."""
    g = f.builder
    since = g.op("Sub", g.unsqueeze(elapsed, 3), g.unsqueeze(elapsed, 2))
    slots = g.iota(f.dim("block_size"))
    later = g.op("Greater", g.unsqueeze(slots, 0), g.unsqueeze(slots, 1))
    # Masked before the exponential: above the diagonal the difference is positive and may overflow.
    return g.op("Exp", g.op("Where", later, g.f32(MASKED), since))
