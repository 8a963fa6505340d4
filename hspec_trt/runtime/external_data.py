# SPDX-License-Identifier: Apache-2.0
"""Refuses a graph whose weights lie outside its folder, before a backend opens them. Reads names, never weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx

from hspec_trt.errors import LoadError


def check_external_data(graph: Path) -> None:
    """Check every tensor of a graph, of its branches and of its functions.

    Raises:
        LoadError: L034 for a path that is absolute or leaves the folder; L030 for what is no ONNX file.
    """
    try:
        model = onnx.load(graph, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError has no public home in every version
        raise LoadError("L030", f"the graph cannot be read: {error}", where=str(graph)) from error
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    tensors = [*model.graph.initializer, *(tensor for nodes in bodies for tensor in _node_tensors(nodes))]
    for tensor in tensors:
        for entry in tensor.external_data:
            if entry.key == "location" and not _is_plain_name(entry.value):
                found = f"weight {tensor.name!r} lies at {entry.value!r}"
                raise LoadError("L034", found, needed="a plain file name in the engine folder", where=str(graph))


def _is_plain_name(name: str) -> bool:
    return name not in ("", ".", "..") and Path(name).name == name


def _node_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for body in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from body.initializer
                yield from _node_tensors(body.node)
