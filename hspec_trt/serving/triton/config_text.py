# SPDX-License-Identifier: Apache-2.0
"""A model's ``config.pbtxt``: what it says, and its text (protobuf text format, ``inference.ModelConfig``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hspec_trt.serving.triton.tensors import Tensor


@dataclass(frozen=True)
class Step:
    """One model of an ensemble.

    Attributes:
        inputs: the model's input to the ensemble's tensor; `outputs`: the model's output to the ensemble's tensor.
    """

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class ModelConfig:
    """One model of a repository.

    Attributes:
        max_batch_size: prompts of one request at most; 0 means that tensors have no batch dimension.
        instances: processes that run the model.
        parameters: strings that the model finds in its configuration.
        steps: of an ensemble; empty for a model with code of its own.
        notes: lines for people, written as comments at the top.
    """

    name: str
    max_batch_size: int
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    decoupled: bool = False
    instances: int = 1
    parameters: Mapping[str, str] = field(default_factory=dict)
    steps: Sequence[Step] = ()
    notes: Sequence[str] = ()

    def to_text(self) -> str:
        """The file's text."""
        return "\n".join(_lines(self)) + "\n"


def _lines(config: ModelConfig) -> Iterator[str]:
    yield from (f"# {note}" for note in config.notes)
    yield f"name: {_quoted(config.name)}"
    yield 'platform: "ensemble"' if config.steps else 'backend: "python"'
    yield f"max_batch_size: {config.max_batch_size}"
    for tensor in config.inputs:
        yield f"input {{ {_tensor(tensor)} }}"
    for tensor in config.outputs:
        yield f"output {{ {_tensor(tensor)} }}"
    if config.steps:
        yield from _ensemble(config.steps)
        return
    # KIND_CPU says that Triton need not place the model; which GPU an engine uses is a parameter of ours.
    yield f"instance_group {{ count: {config.instances} kind: KIND_CPU }}"
    yield f"model_transaction_policy {{ decoupled: {str(config.decoupled).lower()} }}"
    for key, value in config.parameters.items():
        yield f"parameters {{ key: {_quoted(key)} value {{ string_value: {_quoted(value)} }} }}"


def _tensor(tensor: Tensor) -> str:
    dims = ", ".join(str(size) for size in tensor.dims)
    text = f"name: {_quoted(tensor.name)} data_type: TYPE_{tensor.dtype} dims: [ {dims} ]"
    text += " reshape { shape: [ ] }" if tensor.scalar else ""
    text += " allow_ragged_batch: true" if tensor.ragged else ""
    return text + (" optional: true" if tensor.optional else "")


def _ensemble(steps: Sequence[Step]) -> Iterator[str]:
    yield "ensemble_scheduling {"
    for step in steps:
        yield f"  step {{ model_name: {_quoted(step.model)} model_version: -1"
        for kind, names in (("input_map", step.inputs), ("output_map", step.outputs)):
            yield from (f"    {kind} {{ key: {_quoted(key)} value: {_quoted(names[key])} }}" for key in names)
        yield "  }"
    yield "}"


_ESCAPES = {'"': '\\"', "\\": "\\\\"}


def _quoted(text: str) -> str:
    """A string in protobuf's text format; characters below the space are written in octal."""
    shown = (_ESCAPES.get(char, char) if char >= " " else f"\\{ord(char):03o}" for char in text)
    return f'"{"".join(shown)}"'
