# SPDX-License-Identifier: Apache-2.0
"""Reads from a built engine, or from text on a command line, which kernels are needed.

It owns how an op's attributes in graph.onnx become a need. It compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import onnx
from onnx import helper

from hspec_trt.bundle import open_engine
from hspec_trt.contract import (
    APPEND_KV,
    MAMBA2_BLOCK_SCAN,
    OP_DOMAIN,
    PAGED_ATTENTION,
    SAMPLE_TOKENS,
    SHARED_KV_ATTENTION,
    OpSpec,
)
from hspec_trt.dtypes import ALL
from hspec_trt.errors import BuildError
from plugins.kernels.needs import KINDS, AppendNeed, Need, PagedNeed, SampleNeed, ScanNeed, SharedNeed, faults

GRAPH_FILE: Final = "graph.onnx"
_EXAMPLES: Final = {
    "paged": "paged:bfloat16,head_dim=128,group=4,page_size=64,verify_width=8",
    "shared": "shared:bfloat16,head_dim=128,group=4,page_size=64,block=8,causal=1",
    "append": "append:bfloat16,head_dim=128,page_size=64",
    "scan": "scan:bfloat16,num_heads=48,head_dim=64,state_size=4,n_groups=4,conv_kernel=4,block_size=8",
    "sample": "sample:vocab_size=151936",
}


def need_from_text(text: str) -> Need:
    """A need as on the command line, such as ``paged:bfloat16,head_dim=128,group=4,page_size=64,verify_width=8``.

    Raises:
        BuildError: B060 it is not of that form, or no kernel can do it.
    """
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise BuildError("B060", f"need {text!r}", needed=f"a kind of {sorted(KINDS)}", fix=f"For example {_EXAMPLES}")
    wanted = {item.name: item for item in fields(KINDS[kind])}
    given: dict[str, str | int] = {}
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            given["dtype"] = name
        elif value.isdigit():
            given[name] = int(value)
    try:
        need = KINDS[kind](**given)  # type: ignore[arg-type]
    except TypeError:
        raise BuildError(
            "B060", f"need {text!r}", needed=f"{list(wanted)}", fix=f"For example {_EXAMPLES[kind]}"
        ) from None
    return _checked(need, f"--need {text}")


def _checked(need: Need, where: str) -> Need:
    found = faults(need)
    if found:
        raise BuildError("B060", "; ".join(found), needed="something that a kernel can do", where=where)
    return need


@dataclass(frozen=True)
class _Graph:
    """What the needs take from a graph: its own type, G + 1, block size, and shapes of its weights."""

    dtype: str
    verify_width: int
    block_size: int
    shapes: Mapping[str, tuple[int, ...]]


Attributes = Mapping[str, int]


def _paged(graph: _Graph, attributes: Attributes, inputs: Mapping[str, str]) -> Need:
    group = attributes["num_heads"] // attributes["num_kv_heads"]
    return PagedNeed(graph.dtype, attributes["head_dim"], group, attributes["page_size"], graph.verify_width)


def _append(graph: _Graph, attributes: Attributes, inputs: Mapping[str, str]) -> Need:
    return AppendNeed(graph.dtype, attributes["head_dim"], attributes["page_size"])


def _shared(graph: _Graph, attributes: Attributes, inputs: Mapping[str, str]) -> Need:
    group = attributes["num_heads"] // attributes["num_kv_heads"]
    return SharedNeed(
        graph.dtype,
        attributes["head_dim"],
        group,
        attributes["page_size"],
        graph.block_size,
        attributes["causal"],
        attributes["no_context"],
    )


def _scan(graph: _Graph, attributes: Attributes, inputs: Mapping[str, str]) -> Need:
    return ScanNeed(graph.dtype, **{name: attributes[name] for name in MAMBA2_BLOCK_SCAN.attributes})


def _sample(graph: _Graph, attributes: Attributes, inputs: Mapping[str, str]) -> Need:
    return SampleNeed(graph.shapes[inputs["token_ids"]][0])


_READERS: Final[Mapping[str, tuple[OpSpec, Callable[[_Graph, Attributes, Mapping[str, str]], Need]]]] = {
    PAGED_ATTENTION.name: (PAGED_ATTENTION, _paged),
    APPEND_KV.name: (APPEND_KV, _append),
    SHARED_KV_ATTENTION.name: (SHARED_KV_ATTENTION, _shared),
    MAMBA2_BLOCK_SCAN.name: (MAMBA2_BLOCK_SCAN, _scan),
    SAMPLE_TOKENS.name: (SAMPLE_TOKENS, _sample),
}


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes in order, those in branches too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _attributes(node: onnx.NodeProto) -> dict[str, int]:
    plain = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: value for name, value in plain.items() if isinstance(value, int)}


def _static_dim(value: onnx.ValueInfoProto, axis: int) -> int:
    return int(value.type.tensor_type.shape.dim[axis].dim_value)


def _graph_facts(graph: onnx.GraphProto, where: str, block_size: int) -> _Graph:
    names = {dtype.onnx: dtype.name for dtype in ALL}
    pages = [value for value in graph.input if value.name.startswith("kv_pages.")]
    emitted = [value for value in graph.output if value.name == "emitted_ids"]
    if not pages or not emitted:
        raise BuildError(
            "B061", f"{where} has no kv_pages input or no emitted_ids output", needed="a step graph of ours"
        )
    width = _static_dim(emitted[0], 1)
    scans = [_attributes(node)["block_size"] for node in _nodes(graph) if node.op_type == MAMBA2_BLOCK_SCAN.name]
    shapes = {initializer.name: tuple(initializer.dims) for initializer in graph.initializer}
    return _Graph(names[pages[0].type.tensor_type.elem_type], width, max([width, block_size, *scans]), shapes)


def needs_of_graph(path: Path, block_size: int = 0) -> list[Need]:
    """What the custom ops of a step graph need, each kind once, in the order of the graph.

    Args:
        path: graph.onnx; its weights are not read.
        block_size: of the drafter, where it is known; else the verify width, or that of its scan, stands for it.

    Raises:
        BuildError: B060 an op needs what no kernel can do, B061 not a step graph.
    """
    graph = onnx.load(path, load_external_data=False).graph
    facts = _graph_facts(graph, str(path), block_size)
    needs: list[Need] = []
    for node in _nodes(graph):
        if node.domain != OP_DOMAIN or node.op_type not in _READERS:
            continue
        spec, read = _READERS[node.op_type]
        need = read(facts, _attributes(node), dict(zip(spec.inputs, node.input, strict=True)))
        if need not in needs:
            needs.append(_checked(need, f"{path}: {node.op_type}"))
    return needs


def needs_of_engine(path: Path) -> list[Need]:
    """What an engine folder (or a graph.onnx alone) needs.

    Raises:
        BuildError: B060, B061 as `needs_of_graph`.
        LoadError: the folder is not an engine.
    """
    if path.is_file():
        return needs_of_graph(path)
    drafter = open_engine(path).manifest.drafter
    return needs_of_graph(path / GRAPH_FILE, drafter.block_size if drafter else 0)
