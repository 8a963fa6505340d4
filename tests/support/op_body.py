# SPDX-License-Identifier: Apache-2.0
"""Runs recorded nodes, or one custom op's function body, in ONNX Runtime on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from hspec_trt import dtypes
from hspec_trt.contract import OP_DOMAIN, OP_VERSION, OPS
from hspec_trt.graph.builder import IR_VERSION, OPSET, Builder
from hspec_trt.graph.functions import op_functions

Arrays = dict[str, np.ndarray]
Record = Callable[[Builder, Mapping[str, ir.Value]], Sequence[ir.Value]]


def _value(name: str, array: np.ndarray) -> ir.Value:
    dtype = ir.DataType(dtypes.BY_NUMPY[array.dtype].onnx)
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape([None] * array.ndim))


def session_of(
    record: Record, example: Arrays, *, branches: bool = False, threads: int = 1, optimize: bool = True
) -> ort.InferenceSession:
    """A session on the nodes that `record` appends; inputs are typed as `example`."""
    g = Builder()
    inputs = {name: _value(name, array) for name, array in example.items()}
    outputs = [g.op("Identity", value) for value in record(g, inputs)]
    graph = ir.Graph(
        list(inputs.values()),
        outputs,
        nodes=g.nodes,
        initializers=g.initializers,
        opset_imports={"": OPSET, OP_DOMAIN: OP_VERSION},
        name="test",
    )
    used = {node.op_type for node in graph.all_nodes() if node.domain == OP_DOMAIN}
    functions = [function for function in op_functions(branches=branches) if function.name in used]
    model = ir.to_proto(ir.Model(graph, ir_version=IR_VERSION, functions=functions))
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def evaluate(record: Record, **inputs: np.ndarray) -> list[np.ndarray]:
    """Record nodes, run them once."""
    return session_of(record, inputs).run(None, inputs)


@cache
def _op_session(
    op: str, types: tuple[tuple[str, str, int], ...], branches: bool, attributes: tuple[tuple[str, int | float], ...]
) -> ort.InferenceSession:
    example = {name: np.empty([0] * rank, dtypes.BY_NAME[dtype].numpy) for name, dtype, rank in types}

    def record(g: Builder, values: Mapping[str, ir.Value]) -> Sequence[ir.Value]:
        spec = OPS[op]
        ordered = [values[name] for name in spec.inputs]
        return g.multi(op, *ordered, num_outputs=len(spec.outputs), domain=OP_DOMAIN, **dict(attributes))

    return session_of(record, example, branches=branches)


def run_op(op: str, inputs: Arrays, *, branches: bool = False, **attributes: int | float) -> Arrays:
    """Outputs of an op's body by name; inputs and attributes as in the contract."""
    types = tuple((name, dtypes.BY_NUMPY[array.dtype].name, array.ndim) for name, array in inputs.items())
    session = _op_session(op, types, branches, tuple(sorted(attributes.items())))
    return dict(zip(OPS[op].outputs, session.run(None, inputs), strict=True))
