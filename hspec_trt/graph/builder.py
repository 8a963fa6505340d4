# SPDX-License-Identifier: Apache-2.0
"""A small layer over onnx-ir: append nodes, share constants, open branches.

Owns how nodes and constants are recorded: in a graph (constants are initializers), in a function (constants are
``Constant`` nodes, since a function has no initializers) and in a branch of ``If``. Knows no model and no op of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike, NDArray

OPSET = 23
IR_VERSION = 10

Attribute = int | float | str | Sequence[int] | Sequence[float] | ir.Graph | ir.DataType
Operand = ir.Value | None


class Builder:
    """Records nodes in order.

    Args:
        in_function: constants become ``Constant`` nodes instead of initializers.
        parent: the builder of the enclosing scope, for a branch; constants are then recorded there.
    """

    def __init__(self, *, in_function: bool = False, parent: Builder | None = None) -> None:
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self._in_function = in_function
        self._parent = parent
        self._num_values = 0
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        self._references: dict[str, ir.Value] = {}

    def op(self, op_type: str, *inputs: Operand, domain: str = "", **attributes: Attribute) -> ir.Value:
        """Append a node with one output and return that output."""
        return self.multi(op_type, *inputs, num_outputs=1, domain=domain, **attributes)[0]

    def multi(
        self, op_type: str, *inputs: Operand, num_outputs: int, domain: str = "", **attributes: Attribute
    ) -> Sequence[ir.Value]:
        """Append a node with several outputs and return them."""
        attrs = [_attribute(name, value) for name, value in attributes.items()]
        return self._append(ir.Node(domain, op_type, inputs, attrs, num_outputs=num_outputs))

    def _append(self, node: ir.Node) -> Sequence[ir.Value]:
        for output in node.outputs:
            output.name = self._fresh_name()
        self.nodes.append(node)
        return node.outputs

    def _fresh_name(self) -> str:
        # One count for a scope and its branches: a branch's value must not hide one of the scope around it.
        if self._parent is not None:
            return self._parent._fresh_name()
        self._num_values += 1
        return f"v{self._num_values}"

    def constant(self, values: ArrayLike, dtype: type[np.generic]) -> ir.Value:
        """A constant tensor; equal ones are recorded once."""
        if self._parent is not None:
            return self._parent.constant(values, dtype)
        array: NDArray[np.generic] = np.asarray(values, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._record(array)
        return self._constants[key]

    def _record(self, array: NDArray[np.generic]) -> ir.Value:
        if self._in_function:
            return self._append(ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(array))]))[0]
        tensor = ir.tensor(array, name=f"const.{len(self.initializers)}")
        return self.initializer(tensor)

    def initializer(self, tensor: ir.TensorProtocol) -> ir.Value:
        """Record a named tensor that belongs to the graph (a weight, or a small constant)."""
        if self._parent is not None:
            return self._parent.initializer(tensor)
        shape = ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=tensor.name, shape=shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        self.initializers.append(value)
        return value

    def f32(self, values: ArrayLike) -> ir.Value:
        """A float32 constant."""
        return self.constant(values, np.float32)

    def f64(self, values: ArrayLike) -> ir.Value:
        """A float64 constant."""
        return self.constant(values, np.float64)

    def i32(self, values: ArrayLike) -> ir.Value:
        """An int32 constant."""
        return self.constant(values, np.int32)

    def i64(self, values: ArrayLike) -> ir.Value:
        """An int64 constant."""
        return self.constant(values, np.int64)

    def attribute(self, name: str, kind: str) -> ir.Value:
        """The value of a function's attribute as a scalar: int64 for kind "int", float32 for "float"."""
        if name not in self._references:
            attr_type = ir.AttributeType.INT if kind == "int" else ir.AttributeType.FLOAT
            reference = ir.RefAttr(f"value_{kind}", name, attr_type)
            self._references[name] = self._append(ir.Node("", "Constant", [], [reference]))[0]
        return self._references[name]

    # Shorthands that every module needs.

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Convert to another element type."""
        return self.op("Cast", value, to=dtype)

    def dim(self, value: ir.Value, axis: int) -> ir.Value:
        """One extent of a tensor, int64 [1] (it may go into `shape`)."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def scalar(self, length_one: ir.Value) -> ir.Value:
        """int64 [1] as a scalar."""
        return self.op("Squeeze", length_one)

    def shape(self, *dims: ir.Value | int) -> ir.Value:
        """A shape made of extents (int64 [1]) and fixed sizes."""
        parts = [dim if isinstance(dim, ir.Value) else self.i64([dim]) for dim in dims]
        return self.op("Concat", *parts, axis=0)

    def reshape(self, value: ir.Value, *dims: ir.Value | int) -> ir.Value:
        """Give a tensor another shape; a fixed 0 keeps the extent at its place, -1 is the rest."""
        if all(isinstance(dim, int) for dim in dims):
            return self.op("Reshape", value, self.i64(dims))  # type: ignore[arg-type]
        return self.op("Reshape", value, self.shape(*dims))

    def unsqueeze(self, value: ir.Value, *axes: int) -> ir.Value:
        """Insert axes of extent 1."""
        return self.op("Unsqueeze", value, self.i64(list(axes)))

    def slice(self, value: ir.Value, start: int, end: int, axis: int) -> ir.Value:
        """Elements start..end of one axis."""
        return self.op("Slice", value, self.i64([start]), self.i64([end]), self.i64([axis]))

    def iota(self, length: ir.Value) -> ir.Value:
        """int64 0, 1, .. length-1; `length` is int64 [1]."""
        return self.op("Range", self.i64(0), self.scalar(length), self.i64(1))

    def reduce(self, op_type: str, value: ir.Value, axis: int, *, keepdims: bool = True) -> ir.Value:
        """ReduceMax, ReduceMin or ReduceSum over one axis."""
        return self.op(op_type, value, self.i64([axis]), keepdims=int(keepdims))

    def any(self, flags: ir.Value) -> ir.Value:
        """bool scalar: whether any flag is set."""
        highest = self.op("ReduceMax", self.cast(flags, ir.DataType.INT32), keepdims=0)
        return self.cast(highest, ir.DataType.BOOL)

    def branch(
        self,
        condition: ir.Value,
        then: Callable[[Builder], Sequence[ir.Value]],
        otherwise: Callable[[Builder], Sequence[ir.Value]],
    ) -> Sequence[ir.Value]:
        """``If``: each callable records its nodes in the builder it is given and returns the branch's outputs.

        Args:
            condition: bool scalar.
        """
        graphs = [self._subgraph([], record) for record in (then, otherwise)]
        return self.multi(
            "If", condition, num_outputs=len(graphs[0].outputs), then_branch=graphs[0], else_branch=graphs[1]
        )

    def loop(
        self,
        count: int,
        state: Sequence[ir.Value],
        step: Callable[[Builder, Sequence[ir.Value]], Sequence[ir.Value]],
    ) -> Sequence[ir.Value]:
        """``Loop``: apply `step` to the state `count` times; returns the last state."""
        formals = [ir.Value(name=self._fresh_name()) for _ in range(2 + len(state))]
        formals[0].type, formals[1].type = ir.TensorType(ir.DataType.INT64), ir.TensorType(ir.DataType.BOOL)
        for formal in formals[:2]:
            formal.shape = ir.Shape([])
        body = self._subgraph(formals, lambda inner: [formals[1], *step(inner, formals[2:])])
        return self.multi("Loop", self.i64(count), None, *state, num_outputs=len(state), body=body)

    def _subgraph(self, formals: Sequence[ir.Value], record: Callable[[Builder], Sequence[ir.Value]]) -> ir.Graph:
        inner = Builder(parent=self)
        # A subgraph must make its outputs itself, also where it hands on a value that it was given.
        outputs = [inner.op("Identity", value) for value in record(inner)]
        return ir.Graph(formals, outputs, nodes=inner.nodes, name="subgraph")


def _attribute(name: str, value: Attribute) -> ir.Attr:
    if isinstance(value, ir.Graph):
        return ir.AttrGraph(name, value)
    if isinstance(value, ir.DataType | int):
        return ir.AttrInt64(name, int(value))
    if isinstance(value, float):
        return ir.AttrFloat32(name, value)
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if all(isinstance(item, int) for item in value):
        return ir.AttrInt64s(name, [int(item) for item in value])
    return ir.AttrFloat32s(name, [float(item) for item in value])
