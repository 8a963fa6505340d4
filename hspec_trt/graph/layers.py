# SPDX-License-Identifier: Apache-2.0
"""Building blocks of a decoder, for the target and the drafters: norm, linear, rotary embedding, SwiGLU.

Owns their numerics: norms and rotation are computed in float32 whatever the engine's type. A layer takes its weights by
name from a `Scope`; an absent bias means none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from hspec_trt.bundle import StoredTensor
from hspec_trt.config.rope import RopeConfig
from hspec_trt.contract import OP_DOMAIN, OpSpec
from hspec_trt.dtypes import FLOAT32, DType
from hspec_trt.graph.builder import Builder

VECTOR_WIDTH = 16
"""Lines whose length is a multiple of this leave no scalar tail to a vectorised loop. ONNX Runtime's Log, Cos and Sin
give other last bits in such a tail, which would make a row's result depend on its place in the step."""


@dataclass
class Scope:
    """What the parts of the graph build with.

    Attributes:
        dtype: the engine's type.
        stored: every weight that the engine stores.
        probe: called with a name and the value that tests may want to see (several are joined on axis 1).
    """

    builder: Builder
    dtype: DType
    stored: Mapping[str, StoredTensor]
    probe: Callable[[str, Sequence[ir.Value]], None]
    _recorded: dict[tuple[str, int], ir.Value] = field(default_factory=dict)

    def inside(self, builder: Builder) -> Scope:
        """The same scope, recording in a branch."""
        return replace(self, builder=builder)

    def has(self, name: str) -> bool:
        """True where the engine stores that weight."""
        return name in self.stored

    def weight(self, name: str, *, rows: int | None = None) -> ir.Value:
        """A stored weight, or its first `rows` rows (the same bytes on disk)."""
        tensor = self.stored[name]
        rows = tensor.shape[0] if rows is None else rows
        if (name, rows) not in self._recorded:
            self._recorded[name, rows] = self.builder.initializer(_external(tensor, rows))
        return self._recorded[name, rows]

    def cast(self, value: ir.Value, dtype: DType) -> ir.Value:
        """Convert; nothing at all in a float32 engine, where every float tensor is float32."""
        return value if self.dtype is FLOAT32 else self.builder.cast(value, ir.DataType(dtype.onnx))

    def custom(self, spec: OpSpec, *inputs: ir.Value, **attributes: int | float) -> tuple[ir.Value, ...]:
        """Append one of our ops, with all attributes that its contract lists."""
        if set(attributes) != set(spec.attributes):
            raise ValueError(f"{spec.name} takes the attributes {sorted(spec.attributes)}, got {sorted(attributes)}")
        typed = {name: (int if kind == "int" else float)(attributes[name]) for name, kind in spec.attributes.items()}
        return tuple(self.builder.multi(spec.name, *inputs, num_outputs=len(spec.outputs), domain=OP_DOMAIN, **typed))


def _external(tensor: StoredTensor, rows: int) -> ir.ExternalTensor:
    if not 0 < rows <= tensor.shape[0]:
        raise ValueError(f"{tensor.name} has {tensor.shape[0]} rows, asked for {rows}")
    nbytes = tensor.nbytes // tensor.shape[0] * rows
    name = tensor.name if rows == tensor.shape[0] else f"{tensor.name}[:{rows}]"
    return ir.ExternalTensor(
        tensor.location,
        offset=tensor.offset,
        length=nbytes,
        dtype=ir.DataType(tensor.dtype.onnx),
        shape=ir.Shape((rows, *tensor.shape[1:])),
        name=name,
    )


def rms_norm(s: Scope, x: ir.Value, weight: str, eps: float) -> ir.Value:
    """Root mean square norm over the last axis, in float32, times the weight; `x` and the weight are of one type."""
    return _rms_norm(s, x, s.weight(weight), eps)


def rms_norm_float32(s: Scope, x: ir.Value, weight: str, eps: float) -> ir.Value:
    """`rms_norm` of a float32 `x` in an engine of any type; only the result is in the engine's type."""
    return s.cast(_rms_norm(s, x, s.cast(s.weight(weight), FLOAT32), eps), s.dtype)


def _rms_norm(s: Scope, x: ir.Value, weight: ir.Value, eps: float) -> ir.Value:
    return s.builder.op("RMSNormalization", x, weight, axis=-1, epsilon=eps, stash_type=FLOAT32.onnx)


def linear(s: Scope, x: ir.Value, prefix: str) -> ir.Value:
    """x [rows, in] times ``{prefix}.weight`` [out, in] transposed, plus ``{prefix}.bias`` where stored."""
    # Gemm with transB takes the checkpoint's layout as it is, in ONNX Runtime and in TensorRT.
    operands = [x, s.weight(f"{prefix}.weight")]
    if s.has(f"{prefix}.bias"):
        operands.append(s.weight(f"{prefix}.bias"))
    return s.builder.op("Gemm", *operands, transB=1)


def swiglu(s: Scope, x: ir.Value, prefix: str) -> ir.Value:
    """down(silu(gate(x)) * up(x))."""
    g = s.builder
    gate = linear(s, x, f"{prefix}.gate_proj")
    silu = g.op("Mul", gate, g.op("Sigmoid", gate))
    return linear(s, g.op("Mul", silu, linear(s, x, f"{prefix}.up_proj")), f"{prefix}.down_proj")


@dataclass(frozen=True)
class RotaryTables:
    """cos and sin of one step, float32 [tokens, 1, rotary_dim / 2]."""

    cos: ir.Value
    sin: ir.Value
    rotary_dim: int


def rotary_tables(s: Scope, positions: ir.Value, rope: RopeConfig, head_dim: int) -> RotaryTables:
    """Tables for positions int32 [tokens]."""
    g = s.builder
    inverse = rope.inverse_frequencies(head_dim)
    width = len(inverse)
    inverse = np.pad(inverse, (0, -width % VECTOR_WIDTH))
    angle = g.op("Mul", g.unsqueeze(g.cast(positions, ir.DataType.FLOAT), 1, 2), g.f32(inverse[None, None, :]))
    cos, sin = (_narrowed(g, g.op(op_type, angle), len(inverse), width) for op_type in ("Cos", "Sin"))
    if rope.attention_scaling != 1.0:
        cos, sin = (g.op("Mul", table, g.f32(rope.attention_scaling)) for table in (cos, sin))
    return RotaryTables(cos, sin, rope.rotary_dim(head_dim))


def _narrowed(g: Builder, table: ir.Value, stored: int, width: int) -> ir.Value:
    return table if stored == width else g.slice(table, 0, width, 2)


@dataclass(frozen=True)
class Lines:
    """Lines [count, ...] that stand for tokens: how many (int64 [1], may be 0), and the rotation of each."""

    count: ir.Value
    tables: RotaryTables


def rotary_lines(s: Scope, positions: ir.Value, rope: RopeConfig, head_dim: int) -> Lines:
    """Lines at positions int32 [count]."""
    return Lines(s.builder.dim(positions, 0), rotary_tables(s, positions, rope, head_dim))


def rotate(s: Scope, x: ir.Value, tables: RotaryTables, head_dim: int) -> ir.Value:
    """Half-split rotation of the first `rotary_dim` channels of each head; x [tokens, heads, 1, d]."""
    # Each token is a sequence of its own: the op needs no transpose, and (unlike its form with three dims, which
    # TensorRT reshapes by -1) it takes a step without tokens.
    rotary_dim = 0 if tables.rotary_dim == head_dim else tables.rotary_dim  # 0: the whole head
    turned = s.builder.op(
        "RotaryEmbedding", s.cast(x, FLOAT32), tables.cos, tables.sin, rotary_embedding_dim=rotary_dim
    )
    return s.cast(turned, s.dtype)
