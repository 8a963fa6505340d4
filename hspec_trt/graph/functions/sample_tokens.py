# SPDX-License-Identifier: Apache-2.0
"""Function body of ``SampleTokens``: one token per row of logits, by seeded Gumbel-max or argmax.

The drawn token is the argmax of ``z + noise`` with ``z = (logit - max) / temperature`` over the tokens that the filters
leave (`filters`); a greedy row takes the argmax of its logits. The body exists in two forms with one meaning:

straight    no control flow, every value computed for every token: what a TensorRT build may compile
branching   noise and filters under ``If``, noise for tokens that can win only: several times faster in ONNX Runtime
"""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.contract import SAMPLE_TOKENS
from hspec_trt.graph.builder import Builder
from hspec_trt.graph.functions.common import OpFunction
from hspec_trt.graph.functions.filters import BISECTION, BY_QUARTERS, Filters
from hspec_trt.graph.functions.noise import NOISE_SPAN, gumbel_noise, row_keys
from hspec_trt.graph.functions.normalize import normalized

FLOAT_MAX = 3e38
EXCLUDED = -3e38
"""Score of a token that cannot be drawn; finite, and lower than any logit minus the row's best."""


def sample_tokens(*, branches: bool) -> ir.Function:
    """The op as standard nodes; shapes as in `hspec_trt.contract.SAMPLE_TOKENS`.

    Args:
        branches: take the branching form.
    """
    f = OpFunction(SAMPLE_TOKENS)
    g, logits = f.builder, f["logits"]
    shifted, normalizer = normalized(g, logits, precise=branches)
    # False for NaN too, since no comparison with NaN holds.
    finite = g.op("LessOrEqual", g.reduce("ReduceL1", logits, 1, keepdims=False), g.f32(FLOAT_MAX))

    rows = _Rows(f)
    if branches:
        scores = g.branch(
            g.any(rows.sampled),
            lambda inner: [_scores_of_candidates(inner, f, rows, shifted)],
            lambda _: [shifted],
        )[0]
        best = g.reduce("ReduceMax", scores, 1)
    else:
        scores = _scores(g, f, rows, shifted)
        # TopK and not ReduceMax: TensorRT-RTX would compile the noise's chain of integer arithmetic into the reduction,
        # and does not finish within minutes (1.7.1.116).
        best, _ = g.multi("TopK", scores, g.i64([1]), num_outputs=2, axis=1)
    column = _first_best(g, scores, best)
    ids = g.op("Gather", f["token_ids"], column)
    chosen = g.op("GatherElements", shifted, g.unsqueeze(column, 1), axis=1)
    logprobs = g.op("Squeeze", g.op("Sub", chosen, normalizer), g.i64([1]))
    return f.finish(ids, logprobs, finite)


class _Rows:
    """The options of each row of logits, [K, 1] each."""

    def __init__(self, f: OpFunction) -> None:
        self._f, self._g = f, f.builder
        self.temperature = self.option("temperature")
        self.sampled = self._g.op("Greater", self.temperature, self._g.f32(0.0))

    def option(self, name: str) -> ir.Value:
        return self._g.unsqueeze(self._g.op("Gather", self._f[name], self._f["row_ids"]), 1)

    def filters(self) -> Filters:
        return Filters(self.option("top_k"), self.option("top_p"), self.option("min_p"))

    def z(self, g: Builder, shifted: ir.Value) -> ir.Value:
        """(logit - max) / temperature; greedy rows as they are."""
        return g.op("Div", shifted, g.op("Where", self.sampled, self.temperature, g.f32(1.0)))


def _first_best(g: Builder, scores: ir.Value, best: ir.Value) -> ir.Value:
    """int64 [K]: the lowest column with the score `best` [K, 1]; the last column where there is none, for NaN.

    TensorRT's ArgMax leaves ties open, and a Where over all tokens is slow in ONNX Runtime. So: the largest "columns
    left from here", exact in float32 below 2**24 columns.
    """
    width = g.dim(scores, 1)
    left = g.cast(g.op("Sub", width, g.iota(width)), ir.DataType.FLOAT)  # V, V - 1, .. 1
    is_best = g.cast(g.op("Equal", scores, best), ir.DataType.FLOAT)
    most = g.reduce("ReduceMax", g.op("Mul", is_best, g.unsqueeze(left, 0)), 1, keepdims=False)
    return g.op("Min", g.op("Sub", width, g.cast(most, ir.DataType.INT64)), g.op("Sub", width, g.i64([1])))


def _scores(g: Builder, f: OpFunction, rows: _Rows, shifted: ir.Value) -> ir.Value:
    """float32 [K, V] whose argmax is drawn."""
    z = rows.z(g, shifted)
    keys = row_keys(g, rows.option("seed"), g.unsqueeze(f["positions"], 1))
    noise = gumbel_noise(g, keys, g.unsqueeze(f["token_ids"], 0))
    threshold = rows.filters().threshold(g, z, BY_QUARTERS, branches=False)
    allowed = g.op("GreaterOrEqual", z, threshold)
    drawn = g.op("Where", allowed, g.op("Add", z, noise), g.f32(EXCLUDED))
    return g.op("Where", rows.sampled, drawn, shifted)


def _scores_of_candidates(g: Builder, f: OpFunction, rows: _Rows, shifted: ir.Value) -> ir.Value:
    """As `_scores`, with noise only for tokens that can win.

    The best token scores at least the lowest noise; one that lies further below it than the noise spans cannot win.
    """
    z = rows.z(g, shifted)
    threshold = rows.filters().threshold(g, z, BISECTION, branches=True)
    threshold = g.op("Max", threshold, g.f32(-NOISE_SPAN))
    threshold = g.op("Where", rows.sampled, threshold, g.f32(FLOAT_MAX))  # no candidates in greedy rows
    flat = g.op("NonZero", g.reshape(g.op("GreaterOrEqual", z, threshold), -1))
    flat = g.op("Squeeze", flat, g.i64([0]))  # [C], into [K * V]
    row = g.op("Div", flat, g.dim(z, 1))
    column = g.op("Sub", flat, g.op("Mul", row, g.dim(z, 1)))

    def pick(values: ir.Value, index: ir.Value) -> ir.Value:
        # Gather and GatherND move single elements three times slower in ONNX Runtime.
        return g.op("GatherElements", g.reshape(values, -1), index, axis=0)

    keys = row_keys(g, rows.option("seed"), g.unsqueeze(f["positions"], 1))
    noise = gumbel_noise(g, tuple(pick(key, row) for key in keys), pick(f["token_ids"], column), precise=True)
    drawn = g.op("Add", pick(z, flat), noise)
    # Sampled rows start from nothing allowed, greedy rows from their logits.
    blank = g.op("Mul", g.cast(rows.sampled, ir.DataType.FLOAT), g.f32(EXCLUDED))
    start = g.reshape(g.op("Add", shifted, blank), -1)
    return g.op("Reshape", g.op("ScatterElements", start, flat, drawn, axis=0), g.op("Shape", z))
