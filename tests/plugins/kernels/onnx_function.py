# SPDX-License-Identifier: Apache-2.0
"""Runs one custom op as its ONNX function in ONNX Runtime, on torch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import torch

from hspec_trt import dtypes
from hspec_trt.contract import KV_DTYPE, OP_DOMAIN, OP_VERSION, OPS, OpSpec
from hspec_trt.graph.builder import IR_VERSION, OPSET
from hspec_trt.graph.functions import op_functions

Attributes = tuple[tuple[str, int | float], ...]


def _value(spec: OpSpec, name: str, kv_dtype: str, rank: int) -> ir.Value:
    operand = spec.operands[name]
    dtype = dtypes.BY_NAME[kv_dtype if operand.dtype == KV_DTYPE else operand.dtype]
    return ir.Value(name=name, type=ir.TensorType(ir.DataType(dtype.onnx)), shape=ir.Shape([None] * rank))


@cache
def _session(op: str, kv_dtype: str, attributes: Attributes) -> ort.InferenceSession:
    spec = OPS[op]
    inputs = [_value(spec, name, kv_dtype, len(spec.operands[name].dims)) for name in spec.inputs]
    outputs = [_value(spec, name, kv_dtype, len(spec.operands[name].dims)) for name in spec.outputs]
    kinds = {"int": ir.AttrInt64, "float": ir.AttrFloat32}
    attrs = [kinds[spec.attributes[name]](name, value) for name, value in attributes]
    node = ir.Node(OP_DOMAIN, op, inputs, attrs, outputs=outputs)
    graph = ir.Graph(inputs, outputs, nodes=[node], opset_imports={"": OPSET, OP_DOMAIN: OP_VERSION}, name="one_op")
    bodies = [function for function in op_functions(branches=False) if function.name == op]
    model = ir.to_proto(ir.Model(graph, ir_version=IR_VERSION, functions=bodies))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_function(op: str, inputs: Mapping[str, torch.Tensor], **attributes: int | float) -> tuple[torch.Tensor, ...]:
    """Outputs of the op's function; attributes as in the contract."""
    floats = {tensor.dtype for name, tensor in inputs.items() if OPS[op].operands[name].dtype == KV_DTYPE}
    kv_dtype = "float16" if torch.float16 in floats else "float32"
    session = _session(op, kv_dtype, tuple(sorted(attributes.items())))
    results = session.run(None, {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in inputs.items()})
    return tuple(torch.from_numpy(result) for result in results)
