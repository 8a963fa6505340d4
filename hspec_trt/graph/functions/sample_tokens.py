# SPDX-License-Identifier: Apache-2.0
"""Function body of ``SampleTokens``: one token per row of logits, by seeded Gumbel-max or argmax.

Filters act on ``z = (logit - max) / temperature`` through a threshold per row: top-k by count, then top-p by mass of
what top-k left, and min-p relative to the best token; the highest of the three counts. Top-k and top-p find theirs by
repeated search in [`FILTER_FLOOR`, 0], so tokens that close to the edge may stay in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from hspec_trt.contract import FILTER_FLOOR, SAMPLE_TOKENS
from hspec_trt.graph.builder import Builder
from hspec_trt.graph.functions.common import OpFunction
from hspec_trt.graph.functions.noise import gumbel_noise

FLOAT_MAX = 3e38
NO_THRESHOLD = -3e38


@dataclass(frozen=True)
class SearchPlan:
    """How a threshold is searched: `rounds` rounds that cut the interval into `parts` parts each.

    parts ** rounds is the resolution. Many rounds of two parts are cheapest where each pass over the logits costs;
    few rounds of many parts give a compiler a short chain.
    """

    rounds: int
    parts: int


HALVING = SearchPlan(rounds=24, parts=2)
SIXTEENTHS = SearchPlan(rounds=6, parts=16)


def sample_tokens(*, branches: bool) -> ir.Function:
    """The op as standard nodes; shapes as in `hspec_trt.contract.SAMPLE_TOKENS`.

    Args:
        branches: put the noise and the filters under ``If`` so that a step in which no row wants them does not pay;
            without, the same values come from straight-line nodes.
    """
    f = OpFunction(SAMPLE_TOKENS)
    g = f.builder
    best = g.reduce("ReduceMax", f["logits"], 1)
    shifted = g.op("Sub", f["logits"], best)  # [K, V]
    # ReduceLogSumExp is slower than these three nodes in ONNX Runtime.
    normalizer = g.op("Log", g.reduce("ReduceSum", g.op("Exp", shifted), 1))
    finite = g.op("LessOrEqual", g.reduce("ReduceL1", f["logits"], 1, keepdims=False), g.f32(FLOAT_MAX))

    sampler = _Sampler(f, shifted, HALVING if branches else SIXTEENTHS, branches=branches)
    column = _first_best(g, sampler.scores())
    ids = g.op("Gather", f["token_ids"], column)
    chosen = g.op("GatherElements", shifted, g.unsqueeze(column, 1), axis=1)
    logprobs = g.op("Squeeze", g.op("Sub", chosen, normalizer), g.i64([1]))
    return f.finish(ids, logprobs, finite)


def _first_best(g: Builder, scores: ir.Value) -> ir.Value:
    """int64 [K]: the lowest column with the highest score (TensorRT's ArgMax leaves ties open)."""
    width = g.dim(scores, 1)
    columns = g.unsqueeze(g.iota(width), 0)
    last = g.op("Sub", width, g.i64([1]))  # also the answer where no score equals the best, for NaN
    is_best = g.op("Equal", scores, g.reduce("ReduceMax", scores, 1))
    return g.reduce("ReduceMin", g.op("Where", is_best, columns, last), 1, keepdims=False)


class _Sampler:
    """Scores whose argmax is the sampled token."""

    def __init__(self, f: OpFunction, shifted: ir.Value, plan: SearchPlan, *, branches: bool) -> None:
        self.f, self.shifted, self.plan, self.branches = f, shifted, plan, branches

    def scores(self) -> ir.Value:
        """float32 [K, V]: logit - max for a greedy row, z + noise where not filtered otherwise."""
        g = self.f.builder
        temperature = self._row_values(g, "temperature")
        sampled = g.op("Greater", temperature, g.f32(0.0))
        return self._if_any(g, sampled, lambda inner: self._noisy(inner, temperature, sampled), self.shifted)

    def _if_any(
        self, g: Builder, wanted: ir.Value, then: Callable[[Builder], ir.Value], otherwise: ir.Value
    ) -> ir.Value:
        """`then` where any row wants it (always, without branches; it must then leave other rows as they are)."""
        if not self.branches:
            return then(g)
        any_row = g.cast(g.op("ReduceMax", g.cast(wanted, ir.DataType.INT32), keepdims=0), ir.DataType.BOOL)
        return g.branch(any_row, lambda inner: [then(inner)], lambda _: [otherwise])[0]

    def _row_values(self, g: Builder, name: str) -> ir.Value:
        """A per-request option for each row of logits: [K, 1]."""
        return g.unsqueeze(g.op("Gather", self.f[name], self.f["row_ids"]), 1)

    def _noisy(self, g: Builder, temperature: ir.Value, sampled: ir.Value) -> ir.Value:
        z = g.op("Div", self.shifted, g.op("Where", sampled, temperature, g.f32(1.0)))
        noise = gumbel_noise(g, self._row_values(g, "seed"), g.unsqueeze(self.f["positions"], 1), self.f["token_ids"])
        allowed = g.op("GreaterOrEqual", z, self._threshold(g, z))
        scores = g.op("Where", allowed, g.op("Add", z, noise), g.f32(NO_THRESHOLD))
        return g.op("Where", sampled, scores, self.shifted)

    def _threshold(self, g: Builder, z: ir.Value) -> ir.Value:
        """float32 [K, 1]: tokens with a lower z are out."""
        lowest = g.op("Log", self._row_values(g, "min_p"))  # -inf where min_p is 0
        top_k = self._top_k(g, z)
        top_p = self._top_p(g, z, top_k)
        return g.op("Max", lowest, top_k, top_p)

    def _top_k(self, g: Builder, z: ir.Value) -> ir.Value:
        wanted = g.cast(self._row_values(g, "top_k"), ir.DataType.FLOAT)
        is_set = g.op("Greater", wanted, g.f32(0.0))

        def search(inner: Builder) -> ir.Value:
            found = self._search(inner, z, inner.f32([[1.0]]), wanted)
            return inner.op("Where", is_set, found, inner.f32(NO_THRESHOLD))

        return self._if_any(g, is_set, search, self._no_threshold(g, wanted))

    def _top_p(self, g: Builder, z: ir.Value, top_k: ir.Value) -> ir.Value:
        share = self._row_values(g, "top_p")
        is_set = g.op("Less", share, g.f32(1.0))

        def search(inner: Builder) -> ir.Value:
            kept = inner.op("GreaterOrEqual", z, top_k)
            mass = inner.op("Where", kept, inner.op("Exp", z), inner.f32(0.0))
            wanted = inner.op("Mul", share, inner.reduce("ReduceSum", mass, 1))
            found = self._search(inner, z, mass, wanted)
            return inner.op("Where", is_set, found, inner.f32(NO_THRESHOLD))

        return self._if_any(g, is_set, search, self._no_threshold(g, share))

    def _no_threshold(self, g: Builder, like: ir.Value) -> ir.Value:
        return g.op("Expand", g.f32(NO_THRESHOLD), g.op("Shape", like))

    def _search(self, g: Builder, z: ir.Value, weight: ir.Value, wanted: ir.Value) -> ir.Value:
        """Highest threshold found at which the weights of tokens with z >= threshold sum to at least `wanted`."""
        low = g.op("Expand", g.f32(FILTER_FLOOR), g.op("Shape", wanted))  # [K, 1]
        z = g.unsqueeze(z, 1)
        width = -FILTER_FLOOR
        for _ in range(self.plan.rounds):
            width /= self.plan.parts
            levels = g.op("Add", low, g.f32([[width * part for part in range(1, self.plan.parts)]]))
            kept = g.op("GreaterOrEqual", z, g.unsqueeze(levels, 2))  # [K, parts - 1, V]
            sums = g.reduce("ReduceSum", g.op("Where", kept, g.unsqueeze(weight, 1), g.f32(0.0)), 2, keepdims=False)
            enough = g.cast(g.op("GreaterOrEqual", sums, wanted), ir.DataType.FLOAT)
            low = g.op("Add", low, g.op("Mul", g.reduce("ReduceSum", enough, 1), g.f32(width)))
        return low
