# SPDX-License-Identifier: Apache-2.0
"""Top-k, top-p and min-p as one threshold per row on ``z = (logit - max) / temperature``; no sort.

Top-k by count, top-p by the mass of what top-k left, min-p relative to the best token (``log(min_p)``); the highest of
the three thresholds counts. The first two are found by search in [`FILTER_FLOOR`, 0] to about 2e-6, so a token closer
than that to the edge may stay in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from hspec_trt.contract import FILTER_FLOOR
from hspec_trt.graph.builder import Builder

NO_THRESHOLD = -3e38


@dataclass(frozen=True)
class Search:
    """`rounds` rounds, each of which cuts the interval into `parts` parts; parts ** rounds is the resolution.

    Halving is cheapest where each pass over the tokens costs. More parts give a compiler a shorter chain of rounds, at
    parts - 1 values per token should it not fuse them into the sum.
    """

    rounds: int
    parts: int


BISECTION = Search(rounds=24, parts=2)
BY_QUARTERS = Search(rounds=12, parts=4)


@dataclass(frozen=True)
class Filters:
    """The options of each row, [K, 1]; 0, 1 and 0 are off."""

    top_k: ir.Value
    top_p: ir.Value
    min_p: ir.Value

    def threshold(self, g: Builder, z: ir.Value, search: Search, *, branches: bool) -> ir.Value:
        """float32 [K, 1]: tokens with a lower z are out.

        Args:
            z: float32 [K, V], 0 for the best token.
            branches: search under ``If`` any row wants it, in a ``Loop``.
        """
        find = _Finder(z, search, branches=branches)
        wanted = g.cast(self.top_k, ir.DataType.FLOAT)
        top_k = find.where(g, g.op("Greater", wanted, g.f32(0.0)), lambda inner: self._by_count(inner, find, wanted))
        is_set = g.op("Less", self.top_p, g.f32(1.0))
        top_p = find.where(g, is_set, lambda inner: self._by_mass(inner, find, top_k))
        return g.op("Max", top_k, top_p, g.op("Log", self.min_p))  # log(0) is -inf: off

    def _by_count(self, g: Builder, find: _Finder, wanted: ir.Value) -> ir.Value:
        return find.highest(g, g.f32([[1.0]]), wanted)

    def _by_mass(self, g: Builder, find: _Finder, top_k: ir.Value) -> ir.Value:
        kept = g.cast(g.op("GreaterOrEqual", find.z, top_k), ir.DataType.FLOAT)
        mass = g.op("Mul", kept, g.op("Exp", find.z))
        return find.highest(g, mass, g.op("Mul", self.top_p, g.reduce("ReduceSum", mass, 1)))


class _Finder:
    """Searches for the highest threshold above which the tokens weigh enough."""

    def __init__(self, z: ir.Value, search: Search, *, branches: bool) -> None:
        self.z, self._search, self._branches = z, search, branches

    def where(self, g: Builder, is_set: ir.Value, find: Callable[[Builder], ir.Value]) -> ir.Value:
        """What `find` records, for rows that have the option set; [K, 1]."""

        def masked(inner: Builder) -> ir.Value:
            return inner.op("Where", is_set, find(inner), inner.f32(NO_THRESHOLD))

        if not self._branches:
            return masked(g)
        return g.branch(
            g.any(is_set),
            lambda inner: [masked(inner)],
            lambda inner: [inner.op("Expand", inner.f32(NO_THRESHOLD), inner.op("Shape", is_set))],
        )[0]

    def highest(self, g: Builder, weight: ir.Value, wanted: ir.Value) -> ir.Value:
        """Highest threshold found at which the weights of tokens with z >= threshold sum to at least `wanted`.

        Args:
            weight: float32 [K, V] or [1, 1].
            wanted: float32 [K, 1].
        """
        low = g.op("Expand", g.f32(FILTER_FLOOR), g.op("Shape", wanted))
        parts, width = self._search.parts, -FILTER_FLOOR

        def narrowed(inner: Builder, low: ir.Value, part: ir.Value, steps: ir.Value) -> ir.Value:
            enough = self._enough(inner, weight, wanted, inner.op("Add", low, steps))
            return inner.op("Add", low, inner.op("Mul", enough, part))

        if self._branches:

            def narrowed_again(inner: Builder, low: ir.Value, width: ir.Value) -> list[ir.Value]:
                part = inner.op("Div", width, inner.f32(float(parts)))
                steps = inner.op("Mul", part, inner.f32([list(range(1, parts))]))
                return [narrowed(inner, low, part, steps), part]

            state = [low, g.f32(width)]
            return g.loop(self._search.rounds, state, lambda inner, state: narrowed_again(inner, *state))[0]
        for _ in range(self._search.rounds):
            width /= parts
            steps = g.f32([[width * step for step in range(1, parts)]])
            low = narrowed(g, low, g.f32(width), steps)
        return low

    def _enough(self, g: Builder, weight: ir.Value, wanted: ir.Value, levels: ir.Value) -> ir.Value:
        """float32 [K, 1]: how many of the rising levels [K, parts - 1] leave at least `wanted`."""
        kept = g.op("GreaterOrEqual", g.unsqueeze(self.z, 1), g.unsqueeze(levels, 2))  # [K, parts - 1, V]
        # A product instead of Where, which is ten times slower in ONNX Runtime.
        left = g.op("Mul", g.cast(kept, ir.DataType.FLOAT), g.unsqueeze(weight, 1))
        sums = g.reduce("ReduceSum", left, 2, keepdims=False)
        return g.reduce("ReduceSum", g.cast(g.op("GreaterOrEqual", sums, wanted), ir.DataType.FLOAT), 1)
