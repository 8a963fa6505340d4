# SPDX-License-Identifier: Apache-2.0
"""From recorded nodes to an ONNX model: typed inputs and outputs by contract name, functions, opsets.

Owns how the contract's `TensorSpec` becomes an ONNX value. Knows nothing of what the step computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from hspec_trt import dtypes
from hspec_trt.bundle import StoredTensor
from hspec_trt.contract import KV_DTYPE, OP_DOMAIN, OP_VERSION, TensorSpec
from hspec_trt.dtypes import DType
from hspec_trt.graph.builder import IR_VERSION, OPSET, Builder
from hspec_trt.graph.layers import Scope

PROBE = "probe."


class StepRecorder:
    """Holds the graph while it is recorded.

    Args:
        specs: the step's inputs.
        sizes: values of named dims that are fixed in this engine, such as ``kv_heads``.
    """

    def __init__(
        self,
        dtype: DType,
        specs: Iterable[TensorSpec],
        sizes: Mapping[str, int],
        weights: Mapping[str, StoredTensor],
        *,
        probes: bool,
    ) -> None:
        self.dtype, self.sizes = dtype, sizes
        self.builder = Builder()
        self.inputs = {spec.name: self._typed(ir.Value(name=spec.name), spec) for spec in specs}
        self._probes: list[ir.Value] = []
        self.scope = Scope(self.builder, dtype, weights, self._probe if probes else _ignore)

    def _typed(self, value: ir.Value, spec: TensorSpec) -> ir.Value:
        dtype = self.dtype if spec.dtype == KV_DTYPE else dtypes.BY_NAME[spec.dtype]
        value.type = ir.TensorType(ir.DataType(dtype.onnx))
        value.shape = ir.Shape([self.sizes.get(dim, int(dim) if dim.isdigit() else dim) for dim in spec.dims])
        return value

    def _probe(self, name: str, values: Sequence[ir.Value]) -> None:
        """Make an intermediate value (or several, joined on axis 1) a further output."""
        joined = values[0] if len(values) == 1 else self.builder.op("Concat", *values, axis=1)
        output = self.builder.cast(joined, ir.DataType.FLOAT)
        output.name = PROBE + name
        output.type = ir.TensorType(ir.DataType.FLOAT)
        self._probes.append(output)

    def model(self, outputs: Mapping[TensorSpec, ir.Value], functions: Sequence[ir.Function]) -> ir.Model:
        """Close the graph.

        Args:
            outputs: in order.
            functions: bodies of the custom ops.
        """
        results = []
        for spec, value in outputs.items():
            value.name = spec.name
            results.append(self._typed(value, spec))
        graph = ir.Graph(
            list(self.inputs.values()),
            [*results, *self._probes],
            nodes=self.builder.nodes,
            initializers=self.builder.initializers,
            opset_imports={"": OPSET, OP_DOMAIN: OP_VERSION},
            name="step",
        )
        used = {node.op_type for node in graph.all_nodes() if node.domain == OP_DOMAIN}
        return ir.Model(
            graph,
            ir_version=IR_VERSION,
            producer_name="hspec_trt",
            functions=[function for function in functions if function.name in used],
        )


def _ignore(_name: str, _values: Sequence[ir.Value]) -> None:
    """The probe of an engine: none."""
