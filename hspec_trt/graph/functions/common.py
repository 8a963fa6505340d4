# SPDX-License-Identifier: Apache-2.0
"""What the function bodies share: formal inputs, and attention over pages of a grouped K/V cache."""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.contract import OP_DOMAIN, OpSpec
from hspec_trt.graph.builder import OPSET, Builder

MASKED = -1e30
"""Added to the score of a key that a query must not see; finite, so that a fully masked line gives no NaN."""


class OpFunction:
    """A function under construction: formal inputs and attributes by their name in the contract."""

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        self.builder = Builder(in_function=True)
        self._inputs = {name: ir.Value(name=name) for name in spec.inputs}

    def __getitem__(self, name: str) -> ir.Value:
        """A formal input, or an attribute as a scalar (int64 or float32)."""
        if name in self._inputs:
            return self._inputs[name]
        return self.builder.attribute(name, self.spec.attributes[name])

    def dim(self, name: str) -> ir.Value:
        """An integer attribute as int64 [1], to be part of a shape."""
        return self.builder.unsqueeze(self[name], 0)

    def finish(self, *outputs: ir.Value) -> ir.Function:
        """Close the function."""
        for name, value in zip(self.spec.outputs, outputs, strict=True):
            value.name = name
        graph = ir.Graph(
            list(self._inputs.values()), outputs, nodes=self.builder.nodes, opset_imports={"": OPSET}, name=""
        )
        kinds = {"int": ir.AttributeType.INT, "float": ir.AttributeType.FLOAT}
        attributes = [ir.Attr(name, kinds[kind], None) for name, kind in self.spec.attributes.items()]
        function = ir.Function(OP_DOMAIN, self.spec.name, "", graph=graph, attributes=attributes)
        for node in function.all_nodes():
            node.name = None  # names inside a function make TensorRT's parser warn about duplicates
        return function


def grouped_heads(g: Builder, num_heads: ir.Value, num_groups: ir.Value) -> ir.Value:
    """num_heads / num_groups as int64 [1].

    Taken from the shape of a reshaped tensor: TensorRT's parser refuses integer division of two constants.
    """
    heads = g.op("Range", g.i64(0), num_heads, g.i64(1))
    return g.dim(g.reshape(heads, num_groups, -1), 1)


def product(g: Builder, first: ir.Value, second: ir.Value) -> ir.Value:
    """first * second of two attributes (int64 [1]), as int64 [1]; for the reason given at `grouped_heads`."""
    return g.dim(g.reshape(g.op("Expand", g.f32(0.0), g.shape(first, second)), -1), 0)


def scaled_query(g: Builder, query: ir.Value, scale: ir.Value) -> ir.Value:
    """query * scale, multiplied in float32: cheaper here than on the scores."""
    return g.op("CastLike", g.op("Mul", g.cast(query, ir.DataType.FLOAT), scale), query)


def paged_view(g: Builder, pages: ir.Value, page_size: ir.Value, head_dim: ir.Value) -> ir.Value:
    """Pages [P, 2, kv_heads, page_size, d] as [P * 2 * kv_heads, page_size, d]."""
    return g.reshape(pages, -1, g.unsqueeze(page_size, 0), head_dim)


def gather_pages(
    g: Builder,
    view: ir.Value,
    page_table: ir.Value,
    num_kv_heads: ir.Value,
    page_size: ir.Value,
    head_dim: ir.Value,
    *,
    part: int,
) -> ir.Value:
    """K (part 0) or V (part 1) of each row: [R, kv_heads, M * page_size, d]; one gather, no transpose."""
    page = g.unsqueeze(g.cast(page_table, ir.DataType.INT64), 1)  # [R, 1, M]
    kv_heads = g.unsqueeze(num_kv_heads, 0)
    heads = g.unsqueeze(g.iota(kv_heads), 0, 2)  # [1, kv_heads, 1]
    plane = g.op("Add", g.op("Mul", page, g.i64(2)), g.i64(part))
    index = g.op("Add", g.op("Mul", plane, num_kv_heads), heads)
    length = num_paged_keys(g, page_table, page_size)
    return g.reshape(g.op("Gather", view, index), g.dim(page_table, 0), kv_heads, length, head_dim)


def num_paged_keys(g: Builder, page_table: ir.Value, page_size: ir.Value) -> ir.Value:
    """S = M * page_size as int64 [1]; from the page table and not from the keys, so that all layers share it."""
    return g.op("Mul", g.dim(page_table, 1), page_size)


def masked_softmax(g: Builder, scores: ir.Value, visible: ir.Value) -> ir.Value:
    """Softmax over the last axis in float32, in the scores' own type again."""
    bias = g.op("Where", visible, g.f32(0.0), g.f32(MASKED))
    weights = g.op("Softmax", g.op("Add", g.cast(scores, ir.DataType.FLOAT), bias), axis=-1)
    return g.op("CastLike", weights, scores)
