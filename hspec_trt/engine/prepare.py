# SPDX-License-Identifier: Apache-2.0
"""The graph as TensorRT takes it: a copy in memory whose custom nodes name their plugins.

The stored graph keeps neutral nodes with function bodies, which ONNX Runtime runs. TensorRT prefers the body unless the
node says ``plugin_namespace``; with ``--plugins none`` the bodies stand in place of the nodes. Works on the serialised
graph, so that the caller's model stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, InlinePass, RemoveUnusedNodesPass

from hspec_trt import dtypes
from hspec_trt.config.build import PluginMode
from hspec_trt.contract import OP_DOMAIN, OPS, PLUGIN_VERSION
from hspec_trt.errors import BuildError
from hspec_trt.native import OpNode, PluginLibrary

DYNAMIC = -1
LONGEST_ROW, BLOCK = "T", "B"
"""Sizes of a call that the contract names, which choose the tile of an attention kernel."""
TOLD_KERNELS = 3


@dataclass(frozen=True)
class ExternalWeight:
    """An initializer whose bytes lie in the weights file.

    Attributes:
        offset, length: bytes in that file.
    """

    name: str
    offset: int
    length: int


def for_tensorrt(model: onnx.ModelProto, plugins: PluginMode) -> bytes:
    """The serialised graph for TensorRT's parser; `model` is not changed.

    Bodies stay in it for ops that have no plugin. Where bodies are compiled, they stand in place of their calls, and
    what they compute alike is computed once: half of the layers, and less of TensorRT's time and memory.
    """
    if plugins == "none":
        return _inlined(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in _plugin_nodes(copy):
        node.attribute.append(onnx.helper.make_attribute("plugin_namespace", OP_DOMAIN))
        node.attribute.append(onnx.helper.make_attribute("plugin_version", PLUGIN_VERSION))
    bodies = [function for function in copy.functions if function.name not in OPS]
    del copy.functions[:]
    copy.functions.extend(bodies)
    data: bytes = copy.SerializeToString()
    return data


def _inlined(model: onnx.ModelProto) -> bytes:
    graph = ir.serde.deserialize_model(model)
    passes = ir.passes.Sequential(InlinePass(), CommonSubexpressionEliminationPass(), RemoveUnusedNodesPass())
    data: bytes = ir.serde.serialize_model(passes(graph).model).SerializeToString()
    return data


def external_weights(model: onnx.ModelProto) -> tuple[ExternalWeight, ...]:
    """The initializers that lie in the weights file, in graph order."""
    found = []
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            found.append(ExternalWeight(tensor.name, int(entries["offset"]), int(entries["length"])))
    return tuple(found)


def _plugin_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    return (node for node in model.graph.node if node.domain == OP_DOMAIN and node.op_type in OPS)


def op_nodes(model: onnx.ModelProto, dtype: str, verify_width: int, block_size: int = 0) -> tuple[OpNode, ...]:
    """The custom nodes as far as their kernels depend on them, equal ones once.

    Args:
        dtype: the engine's type.
        verify_width: drafts a step + 1; stands for T, the tokens of the longest row that is verified.
        block_size: of the drafter; B is taken to be the greatest of it, the verify width and the block of a scan.
    """
    fixed = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    scans = [attr.i for node in _plugin_nodes(model) for attr in node.attribute if attr.name == "block_size"]
    known = {LONGEST_ROW: verify_width, BLOCK: max(verify_width, block_size, *scans)}
    nodes: dict[tuple[object, ...], OpNode] = {}
    for node in _plugin_nodes(model):
        spec, sizes = OPS[node.op_type], known | _sizes(node, fixed)
        attributes = {attr.name: onnx.helper.get_attribute_value(attr) for attr in node.attribute}
        shapes = tuple(tuple(_extent(dim, sizes) for dim in spec.operands[name].dims) for name in spec.inputs)
        key = (node.op_type, tuple(sorted(attributes.items())), shapes)
        nodes.setdefault(key, OpNode(node.op_type, attributes, dtype, shapes))
    return tuple(nodes.values())


def _sizes(node: onnx.NodeProto, fixed: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Attributes, and the sizes of the call that weights among the inputs tell (the vocabulary, from the token ids)."""
    spec = OPS[node.op_type]
    sizes = {attr.name: attr.i for attr in node.attribute if attr.type == onnx.AttributeProto.INT}
    for name, value in zip(spec.inputs, node.input, strict=True):
        for dim, extent in zip(spec.operands[name].dims, fixed.get(value, ()), strict=False):
            if dim.isalpha():
                sizes.setdefault(dim, extent)
    return sizes


def _extent(dim: str, sizes: Mapping[str, int]) -> int:
    """Value of a dim expression of the contract, or `DYNAMIC` where it has a size that changes."""
    total = 0
    for term in dim.split("+"):
        product = 1
        for factor in term.split("*"):
            if not factor.isdigit() and factor not in sizes:
                return DYNAMIC
            product *= int(factor) if factor.isdigit() else sizes[factor]
        total += product
    return total


def check_kernels(library: PluginLibrary, nodes: tuple[OpNode, ...], sm: tuple[int, ...]) -> None:
    """Check that the plugin library holds every kernel that the engine will launch.

    Raises:
        BuildError: B046, with the first missing kernels and the command that compiles all.
    """
    told = dict.fromkeys(library.missing_kernel(node, architecture) for node in nodes for architecture in sm)
    missing = [text for text in told if text]
    if not missing:
        return
    more = f" (and {len(missing) - TOLD_KERNELS} more)" if len(missing) > TOLD_KERNELS else ""
    needs = " ".join(f"--need {need}" for need in dict.fromkeys(map(_need, nodes)))
    raise BuildError(
        "B046",
        "; ".join(missing[:TOLD_KERNELS]) + more,
        where=str(library.path),
        fix=f"python build_scripts/compile_kernels.py {needs} && python build_scripts/build_plugins.py",
    )


def _need(node: OpNode) -> str:
    """What a node needs, as compile_kernels.py takes it."""
    values = {name: str(value) for name, value in node.attributes.items()}
    if node.op == "SampleTokens":
        return f"sample:vocab_size={node.shapes[0][1]}"
    if node.op == "Mamba2BlockScan":
        return f"scan:{node.kv_dtype}," + ",".join(f"{name}={value}" for name, value in values.items())
    if node.op == "AppendKv":
        return f"append:{node.kv_dtype},head_dim={values['head_dim']},page_size={values['page_size']}"
    group = int(node.attributes["num_heads"]) // int(node.attributes["num_kv_heads"])
    shared = f"{node.kv_dtype},head_dim={values['head_dim']},group={group},page_size={values['page_size']}"
    if node.op == "PagedAttention":
        verify_width = node.shapes[OPS[node.op].inputs.index("query_slots")][1]
        return f"paged:{shared},verify_width={verify_width}"
    block = node.shapes[OPS[node.op].inputs.index("query")][1]
    return f"shared:{shared},block={block},causal={values['causal']},no_context={values['no_context']}"


def check_dtype(dtype: str, plugins: PluginMode) -> None:
    """Refuse an engine type that the plugins do not have.

    Raises:
        BuildError: B047.
    """
    if plugins == "kernels" and dtype not in (dtypes.FLOAT16.name, dtypes.BFLOAT16.name):
        raise BuildError(
            "B047",
            f"--dtype {dtype} with plugin kernels",
            needed="bfloat16 or float16",
            fix="Or --plugins none, which compiles the ops' function bodies",
        )
