# SPDX-License-Identifier: Apache-2.0
"""The counter-based Gumbel noise g(seed, position, token id) of `hspec_trt.contract`, as standard nodes.

Only 64-bit multiplication, addition, division and remainder: bit operations do not build in TensorRT.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from hspec_trt.contract import NOISE_C1, NOISE_C2, NOISE_C3, NOISE_PRIME, NOISE_UNIT
from hspec_trt.graph.builder import Builder

SEED_LOW = 65536
NOISE_SPAN = math.log(2.0 / NOISE_UNIT) + math.log(math.log(2.0 / NOISE_UNIT)) + 0.01
"""Highest minus lowest noise (u = 1 - NOISE_UNIT / 2 and NOISE_UNIT / 2), rounded up."""

RowKeys = tuple[ir.Value, ...]


def row_keys(g: Builder, seed: ir.Value, position: ir.Value) -> RowKeys:
    """m + 1, k and k3 of the contract's formula, int64 each, in the shape of the arguments.

    Args:
        seed: int64.
        position: int32, of the token that is drawn.
    """
    key = _cube(g, g.op("Add", _modulo(g, seed), g.i64(NOISE_C1)))
    high = _modulo(g, g.op("Div", seed, g.i64(SEED_LOW)))
    key = _cube(g, g.op("Add", g.op("Add", key, high), g.i64(NOISE_C2)))
    key = _cube(g, g.op("Add", g.op("Add", key, g.cast(position, ir.DataType.INT64)), g.i64(NOISE_C3)))
    multiplier = _cube(g, g.op("Add", key, g.i64(NOISE_C1)))
    last = _cube(g, g.op("Add", multiplier, g.i64(NOISE_C2)))
    return g.op("Add", multiplier, g.i64(1)), key, last


def gumbel_noise(g: Builder, keys: RowKeys, token_ids: ir.Value, *, precise: bool = False) -> ir.Value:
    """Standard Gumbel noise, float32, the same for the same three numbers whatever else is in the step.

    Args:
        keys: from `row_keys`; their shapes and that of `token_ids` are broadcast.
        token_ids: int32.
        precise: take logarithms in float64. ONNX Runtime's float32 Log differs in the last bit between its vector code
            and its scalar tails, so that equal noise would depend on a token's place in the tensor.
    """
    multiplier, offset, last = keys
    product = g.op("Mul", g.cast(token_ids, ir.DataType.INT64), multiplier)
    mixed = _cube(g, g.op("Add", _cube(g, g.op("Add", product, offset)), last))
    real = ir.DataType.DOUBLE if precise else ir.DataType.FLOAT
    cell = g.cast(g.op("Div", mixed, g.i64(256)), real)
    half, unit = (g.f64(value) if precise else g.f32(value) for value in (0.5, NOISE_UNIT))
    uniform = g.op("Mul", g.op("Add", cell, half), unit)
    noise = g.op("Neg", g.op("Log", g.op("Neg", g.op("Log", uniform))))
    return g.cast(noise, ir.DataType.FLOAT) if precise else noise


def _cube(g: Builder, value: ir.Value) -> ir.Value:
    """value ** 3 modulo the prime; the value itself is reduced first."""
    reduced = _modulo(g, value)
    square = _modulo(g, g.op("Mul", reduced, reduced))
    return _modulo(g, g.op("Mul", square, reduced))


def _modulo(g: Builder, value: ir.Value) -> ir.Value:
    return g.op("Mod", value, g.i64(NOISE_PRIME))
