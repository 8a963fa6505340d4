# SPDX-License-Identifier: Apache-2.0
"""Optimization profiles: bounds of every named dimension of a step, for decode and for mixed prefill.

Owns the bounds. It knows an engine's limits and the inputs' symbolic shapes, and nothing of TensorRT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from hspec_trt.config.build import EngineLimits
from hspec_trt.errors import BuildError

Shape = tuple[int, ...]
POOL_FACTOR = 4
"""The pool may hold this many times the pages of a full batch of longest requests: the rest caches prefixes."""

MAX_EDITS = 1 << 20
"""Edits of logits in one step at most, in engines that have them."""


@dataclass(frozen=True)
class DimRange:
    """Least, tuned-for and greatest extent of a named dimension."""

    min: int
    opt: int
    max: int


@dataclass(frozen=True)
class Profile:
    """Shapes of every dynamic input.

    Attributes:
        shapes: input name to its least, tuned-for and greatest shape.
    """

    name: str
    shapes: dict[str, tuple[Shape, Shape, Shape]]


def step_ranges(limits: EngineLimits) -> dict[str, dict[str, DimRange]]:
    """Profile name to the ranges of its named dims (those of `hspec_trt.contract`).

    ``decode`` holds rows of at most G + 1 tokens, ``mixed`` any step up to max_num_tokens. Kernels are tuned for half
    a batch in decode and for a full step in mixed.
    """
    rows, width = limits.max_batch_size, limits.num_drafts + 1
    pages = limits.max_pages_per_row
    half = -(-rows // 2)
    pool = POOL_FACTOR * rows * pages + 1
    shared = {
        "R": DimRange(1, half, rows),
        "K": DimRange(1, half * width, rows * width),
        "D": DimRange(0, half, rows),
        "M": DimRange(1, -(-pages // 2), pages),
        "P": DimRange(2, rows * pages + 1, pool),
        "E": DimRange(0, half * width, min(rows * width * limits.max_seq_len, MAX_EDITS)),
        "L": DimRange(0, half * width, rows * width),
        "J": DimRange(0, half * width, rows * width),
    }
    tokens = limits.max_num_tokens
    decode = shared | {"N": DimRange(1, half * width, rows * width), "T": DimRange(1, width, width)}
    mixed = shared | {"N": DimRange(1, tokens, tokens), "T": DimRange(1, tokens, tokens)}
    return {"decode": decode, "mixed": mixed}


def profiles(inputs: Sequence[ir.Value], limits: EngineLimits) -> tuple[Profile, ...]:
    """Profiles of a graph with these inputs.

    Raises:
        BuildError: B045, an input has a dimension that the contract does not name.
    """
    return tuple(_profile(name, inputs, ranges) for name, ranges in step_ranges(limits).items())


def _profile(name: str, inputs: Sequence[ir.Value], ranges: Mapping[str, DimRange]) -> Profile:
    shapes = {}
    for value in inputs:
        dims = [_extents(value, dim, ranges) for dim in value.shape or ()]
        if any(least != most for least, _, most in dims):
            least, opt, most = (tuple(extents) for extents in zip(*dims, strict=True))
            shapes[str(value.name)] = (least, opt, most)
    return Profile(name, shapes)


def _extents(value: ir.Value, dim: int | ir.SymbolicDim, ranges: Mapping[str, DimRange]) -> tuple[int, int, int]:
    if isinstance(dim, int):
        return dim, dim, dim
    symbol, _, added = str(dim.value).partition("+")
    if symbol not in ranges or (added and not added.isdigit()):
        raise BuildError(
            "B045", f"input {value.name} has a dimension {dim.value}", needed=f"one of {', '.join(ranges)}"
        )
    extra, span = int(added or 0), ranges[symbol]
    return span.min + extra, span.opt + extra, span.max + extra
