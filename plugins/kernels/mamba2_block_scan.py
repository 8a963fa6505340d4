# SPDX-License-Identifier: Apache-2.0
"""Mamba2BlockScan: causal conv with zero history, SiLU, softplus and the selective scan of one short block."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _conv_silu(
    xbc, conv_weight, conv_bias, channels, inside, step, CONV_DIM: tl.constexpr, CONV_KERNEL: tl.constexpr
):  # fmt: skip
    """SiLU of the depthwise causal conv at `step` for `channels`; steps before the block count as zero."""
    acc = tl.load(conv_bias + channels, mask=inside, other=0.0).to(tl.float32)
    for tap in tl.static_range(CONV_KERNEL):
        source = step - (CONV_KERNEL - 1) + tap
        known = inside & (channels * 0 + source >= 0)  # a tensor also where `step` is a constant
        weight = tl.load(conv_weight + channels * CONV_KERNEL + tap, mask=inside, other=0.0).to(tl.float32)
        acc += weight * tl.load(xbc + source * CONV_DIM + channels, mask=known, other=0.0).to(tl.float32)
    return acc / (1.0 + tl.exp(-acc))


@triton.jit
def _softplus(x):
    """log(1 + exp(x)) to float32 accuracy at both ends: log1p as log(w) * u / (w - 1) with w = 1 + u."""
    u = tl.exp(tl.minimum(x, 20.0))
    w = 1.0 + u
    rounded = w - 1.0
    log1p = tl.where(rounded == 0.0, u, tl.log(w) * (u / tl.where(rounded == 0.0, 1.0, rounded)))
    return tl.where(x > 20.0, x, log1p)


@triton.jit
def _scan_step(
    s, xbc, conv_weight, conv_bias, dt, x_channels, b_channels, c_channels, dim_inside, index_inside, a, skip, bias,
    step, NUM_HEADS: tl.constexpr, CONV_DIM: tl.constexpr, CONV_KERNEL: tl.constexpr,
):  # fmt: skip
    """State after `step`, and the step's output."""
    x = _conv_silu(xbc, conv_weight, conv_bias, x_channels, dim_inside, step, CONV_DIM, CONV_KERNEL)
    b = _conv_silu(xbc, conv_weight, conv_bias, b_channels, index_inside, step, CONV_DIM, CONV_KERNEL)
    c = _conv_silu(xbc, conv_weight, conv_bias, c_channels, index_inside, step, CONV_DIM, CONV_KERNEL)
    delta = _softplus(tl.load(dt + step * NUM_HEADS).to(tl.float32) + bias)
    s = s * tl.exp(delta * a) + (delta * x)[:, None] * b[None, :]
    return s, tl.sum(s * c[None, :], 1) + skip * x


@triton.jit
def mamba2_block_scan(
    xbc, dt, conv_weight, conv_bias, dt_bias, a_log, d, state, output,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, STATE_SIZE: tl.constexpr, NUM_GROUPS: tl.constexpr,
    CONV_KERNEL: tl.constexpr, BLOCK_LEN: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_T: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Scan of one head over the block, from the given state:

        S_t = exp(dt_t A) S_{t-1} + dt_t x_t (outer) B_t,   y_t = S_t C_t + D x_t,   A = -exp(a_log)

    Geometry: grid (NUM_HEADS, D); the state [HEAD_DIM, STATE_SIZE] stays in registers, and the output leaves in one
    store, so that no load waits behind a store. All in float32. UNROLL lets the loads of all steps start at once; a
    wide state has no registers for that.
    Bytes: x, dt, state and output move once. B and C of a group are read by each of its NUM_HEADS / NUM_GROUPS heads
    (and each tap again, from the first-level cache): 4 * STATE_SIZE * BLOCK_LEN bytes a head beside
    4 * HEAD_DIM * (BLOCK_LEN + STATE_SIZE), 4 % at 64 x 4 x 8.
    """
    INNER: tl.constexpr = NUM_HEADS * HEAD_DIM
    CONV_DIM: tl.constexpr = INNER + 2 * NUM_GROUPS * STATE_SIZE
    head, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    group = head // (NUM_HEADS // NUM_GROUPS)
    dim = tl.arange(0, BLOCK_P)
    dim_inside = dim < HEAD_DIM
    index = tl.arange(0, BLOCK_S)
    index_inside = index < STATE_SIZE
    x_channels = head * HEAD_DIM + dim
    b_channels = INNER + group * STATE_SIZE + index
    c_channels = b_channels + NUM_GROUPS * STATE_SIZE
    xbc += row * (BLOCK_LEN * CONV_DIM)
    dt += row * (BLOCK_LEN * NUM_HEADS) + head

    a = -tl.exp(tl.load(a_log + head))
    skip = tl.load(d + head)
    bias = tl.load(dt_bias + head)
    state_at = (row * NUM_HEADS + head) * (HEAD_DIM * STATE_SIZE) + dim[:, None] * STATE_SIZE + index[None, :]
    s = tl.load(state + state_at, mask=dim_inside[:, None] & index_inside[None, :], other=0.0)
    steps = tl.arange(0, BLOCK_T)
    result = tl.zeros([BLOCK_T, BLOCK_P], dtype=tl.float32)
    if UNROLL:
        for step in tl.static_range(BLOCK_LEN):
            s, y = _scan_step(
                s, xbc, conv_weight, conv_bias, dt, x_channels, b_channels, c_channels, dim_inside, index_inside,
                a, skip, bias, step, NUM_HEADS, CONV_DIM, CONV_KERNEL,
            )  # fmt: skip
            result = tl.where((steps == step)[:, None], y[None, :], result)
    else:
        for step in range(BLOCK_LEN):
            s, y = _scan_step(
                s, xbc, conv_weight, conv_bias, dt, x_channels, b_channels, c_channels, dim_inside, index_inside,
                a, skip, bias, step, NUM_HEADS, CONV_DIM, CONV_KERNEL,
            )  # fmt: skip
            result = tl.where((steps == step)[:, None], y[None, :], result)
    target = row * (BLOCK_LEN * INNER) + steps[:, None] * INNER + x_channels[None, :]
    mask = (steps < BLOCK_LEN)[:, None] & dim_inside[None, :]
    tl.store(output + target, result.to(output.dtype.element_ty), mask=mask)
