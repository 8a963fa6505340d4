# SPDX-License-Identifier: Apache-2.0
"""The counter-based Gumbel noise g(seed, position, token id) of `hspec_trt.contract`, as standard nodes.

Only 64-bit multiplication, addition, division and remainder: bit operations do not build in TensorRT.
"""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.contract import NOISE_C1, NOISE_C2, NOISE_C3, NOISE_PRIME, NOISE_UNIT
from hspec_trt.graph.builder import Builder

SEED_LOW = 65536


def gumbel_noise(g: Builder, seed: ir.Value, position: ir.Value, token_ids: ir.Value) -> ir.Value:
    """Standard Gumbel noise, the same for the same three numbers whatever else is in the step.

    Args:
        seed: int64 [K, 1].
        position: int32 [K, 1], of the token that is drawn.
        token_ids: int32 [V].

    Returns:
        float32 [K, V].
    """
    multiplier, offset, last = _row_keys(g, seed, g.cast(position, ir.DataType.INT64))
    tokens = g.unsqueeze(g.cast(token_ids, ir.DataType.INT64), 0)
    mixed = _cube(g, _modulo(g, g.op("Add", g.op("Mul", tokens, multiplier), offset)))
    mixed = _cube(g, g.op("Add", mixed, last))
    cell = g.cast(g.op("Div", mixed, g.i64(256)), ir.DataType.FLOAT)
    uniform = g.op("Mul", g.op("Add", cell, g.f32(0.5)), g.f32(NOISE_UNIT))
    return g.op("Neg", g.op("Log", g.op("Neg", g.op("Log", uniform))))


def _row_keys(g: Builder, seed: ir.Value, position: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """m + 1, k and k3 of the contract's formula, int64 [K, 1] each."""
    key = _cube(g, g.op("Add", _modulo(g, seed), g.i64(NOISE_C1)))
    high = _modulo(g, g.op("Div", seed, g.i64(SEED_LOW)))
    key = _cube(g, g.op("Add", g.op("Add", key, high), g.i64(NOISE_C2)))
    key = _cube(g, g.op("Add", g.op("Add", key, position), g.i64(NOISE_C3)))
    multiplier = _cube(g, g.op("Add", key, g.i64(NOISE_C1)))
    last = _cube(g, g.op("Add", multiplier, g.i64(NOISE_C2)))
    return g.op("Add", multiplier, g.i64(1)), key, last


def _cube(g: Builder, value: ir.Value) -> ir.Value:
    """value ** 3 modulo the prime; the value itself is reduced first."""
    reduced = _modulo(g, value)
    square = _modulo(g, g.op("Mul", reduced, reduced))
    return _modulo(g, g.op("Mul", square, reduced))


def _modulo(g: Builder, value: ir.Value) -> ir.Value:
    return g.op("Mod", value, g.i64(NOISE_PRIME))
