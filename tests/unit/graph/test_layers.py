# SPDX-License-Identifier: Apache-2.0
"""Building blocks by themselves: rotary tables and rotation, norms, weights by name, custom op attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import pytest

from hspec_trt.bundle import StoredTensor
from hspec_trt.config.rope import RopeConfig
from hspec_trt.contract import SHARED_KV_ATTENTION
from hspec_trt.dtypes import FLOAT32
from hspec_trt.graph.builder import Builder
from hspec_trt.graph.layers import Scope, rotary_tables, rotate
from tests.support.op_body import evaluate
from tests.support.tolerance import assert_close

ROPES = {
    "default": (RopeConfig(), 16),
    "half of the head": (RopeConfig(partial_rotary_factor=0.5), 32),
    "a quarter": (RopeConfig(theta=1e6, partial_rotary_factor=0.25), 64),
    "yarn": (RopeConfig(rope_type="yarn", factor=4.0, original_max_position=64), 32),
    "odd width": (RopeConfig(), 18),
}


def scope(g: Builder, stored: Mapping[str, StoredTensor] | None = None) -> Scope:
    return Scope(g, FLOAT32, stored or {}, lambda _name, _values: None)


def rotated(x: np.ndarray, positions: np.ndarray, rope: RopeConfig) -> np.ndarray:
    """Half-split rotation in float64; x [tokens, heads, d]."""
    inverse = rope.inverse_frequencies(x.shape[2]).astype(np.float64)
    angle = positions[:, None, None] * inverse
    cos, sin = np.cos(angle) * rope.attention_scaling, np.sin(angle) * rope.attention_scaling
    half = len(inverse)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=2)


@pytest.mark.parametrize("name", ROPES)
def test_rotation(name: str) -> None:
    rope, head_dim = ROPES[name]
    x = np.random.default_rng(0).normal(size=(5, 3, head_dim)).astype(np.float32)
    positions = np.array([0, 1, 7, 100, 250], np.int32)

    def record(g: Builder, values: Mapping[str, ir.Value]) -> Sequence[ir.Value]:
        s = scope(g)
        tables = rotary_tables(s, values["positions"], rope, head_dim)
        return [rotate(s, g.unsqueeze(values["x"], 2), tables, head_dim)]

    (got,) = evaluate(record, x=x, positions=positions)
    # Angles are products of float32 numbers: at 250 radians their rounding is 8e-6.
    assert_close(got[:, :, 0], rotated(x, positions, rope).astype(np.float32), what=name)


def test_first_rows_of_a_weight() -> None:
    stored = {"t": StoredTensor("t", FLOAT32, (10, 3), "w", 64, 120)}
    s = scope(Builder(), stored)
    assert s.weight("t") is s.weight("t")
    part = s.weight("t", rows=4)
    assert part is s.weight("t", rows=4)
    assert part.const_value.shape.numpy() == (4, 3)
    assert (part.const_value.offset, part.const_value.length) == (64, 48)
    with pytest.raises(ValueError, match="10 rows, asked for 11"):
        s.weight("t", rows=11)
    with pytest.raises(KeyError):
        s.weight("u")


def test_attributes_of_a_custom_op_must_be_complete() -> None:
    g = Builder()
    inputs = [ir.Value(name=name) for name in SHARED_KV_ATTENTION.inputs]
    with pytest.raises(ValueError, match="no_context"):
        scope(g).custom(SHARED_KV_ATTENTION, *inputs, window=3)
    assert not g.nodes


def test_equal_constants_are_recorded_once() -> None:
    g = Builder()
    assert g.i64([1, 2]) is g.i64((1, 2))
    assert g.i64(1) is not g.i32(1)
    assert g.f32(0.5) is not g.f64(0.5)
    assert len(g.initializers) == 5
