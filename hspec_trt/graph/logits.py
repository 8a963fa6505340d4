# SPDX-License-Identifier: Apache-2.0
"""What an engine's extensions do with logits: edits and masks before a token is drawn, and the most likely tokens.

A step without edits draws from the logits as they are, and its log-probabilities always are the raw distribution's.
Which edits a request's options mean is the runtime's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from hspec_trt.contract import EXTENSIONS, MAX_TOP_LOGPROBS, TensorSpec
from hspec_trt.graph.builder import Builder
from hspec_trt.graph.functions.normalize import normalized
from hspec_trt.graph.layers import Scope

BANNED = -1e30
"""Logit of a masked token: never drawn, and far from overflow in the sums that look for non-finite logits."""

Sampled = tuple[ir.Value, ir.Value, ir.Value]
Draw = Callable[[Scope, ir.Value], Sampled]


def edits_of(extensions: Sequence[str], inputs: Mapping[str, ir.Value], vocab_size: int) -> LogitEdits | None:
    """The edits that an engine with these extensions makes; None where it has none."""
    names = [name for name in ("logit_edits", "token_masks") if name in extensions]
    return LogitEdits(tuple(names), inputs, vocab_size) if names else None


@dataclass(frozen=True)
class LogitEdits:
    """Edits of logits, by the inputs of the extensions ``logit_edits`` and ``token_masks``."""

    extensions: tuple[str, ...]
    inputs: Mapping[str, ir.Value]
    vocab_size: int

    def sampled(self, s: Scope, logits: ir.Value, draw: Draw, *, branches: bool) -> Sampled:
        """Ids drawn from the edited logits; log-probabilities and finiteness of the raw ones.

        Args:
            logits: float32 [K, V].
            draw: `hspec_trt.graph.verify.sample` for this step.
        """
        g = s.builder
        raw_ids, raw_logprobs, finite = draw(s, logits)

        def edited(inner: Builder) -> list[ir.Value]:
            ids = draw(s.inside(inner), self._edit(inner, logits))[0]
            return [ids, _logprobs_of(inner, logits, ids, precise=branches)]

        if branches:
            counts = [g.dim(self.inputs[EXTENSIONS[name].inputs[0].name], 0) for name in self.extensions]
            some = g.any(g.op("Greater", g.op("Concat", *counts, axis=0), g.i64([0])))
            ids, logprobs = g.branch(some, edited, lambda inner: [raw_ids, raw_logprobs])
        else:
            ids, logprobs = edited(g)
        return ids, logprobs, finite

    def _edit(self, g: Builder, logits: ir.Value) -> ir.Value:
        if "logit_edits" in self.extensions:
            logits = self._scale_and_add(g, logits)
        if "token_masks" in self.extensions:
            logits = self._mask(g, logits)
        return logits

    def _scale_and_add(self, g: Builder, logits: ir.Value) -> ir.Value:
        places = (g.unsqueeze(g.cast(self.inputs[name], ir.DataType.INT64), 1) for name in ("edit_rows", "edit_ids"))
        cells = g.op("Concat", *places, axis=1)  # [E, 2]
        old, scale = g.op("GatherND", logits, cells), self.inputs["edit_scales"]
        scaled = g.op("Where", g.op("Greater", old, g.f32(0.0)), g.op("Div", old, scale), g.op("Mul", old, scale))
        return g.op("ScatterND", logits, cells, g.op("Add", scaled, self.inputs["edit_biases"]))

    def _mask(self, g: Builder, logits: ir.Value) -> ir.Value:
        rows = self.inputs["mask_rows"]
        old = g.op("Gather", logits, rows)  # [L, V and padding columns]
        known = g.slice(old, 0, self.vocab_size, 1)
        padding = g.slice(old, self.vocab_size, 2**31 - 1, 1)
        allowed = g.op("Where", self.inputs["token_masks"], known, g.f32(BANNED))
        place = g.unsqueeze(g.cast(rows, ir.DataType.INT64), 1)
        return g.op("ScatterND", logits, place, g.op("Concat", allowed, padding, axis=1))


def top_logprobs(
    s: Scope, inputs: Mapping[str, ir.Value], logits: ir.Value, vocab_size: int, *, precise: bool
) -> dict[TensorSpec, ir.Value]:
    """The outputs of the extension ``top_logprobs``: the most likely tokens of some rows of logits float32 [K, V].

    Args:
        precise: as in `normalized`.
    """
    g = s.builder
    shifted, normalizer = normalized(g, g.op("Gather", logits, inputs["top_rows"]), precise=precise)
    best, ids = g.multi("TopK", shifted, g.i64([min(MAX_TOP_LOGPROBS, vocab_size)]), num_outputs=2, axis=1)
    values = (g.cast(ids, ir.DataType.INT32), g.op("Sub", best, normalizer))
    return dict(zip(EXTENSIONS["top_logprobs"].outputs, values, strict=True))


def _logprobs_of(g: Builder, logits: ir.Value, ids: ir.Value, *, precise: bool) -> ir.Value:
    """float32 [K]: log-probability of one token a row; the target's columns are its token ids."""
    shifted, normalizer = normalized(g, logits, precise=precise)
    chosen = g.op("GatherElements", shifted, g.unsqueeze(g.cast(ids, ir.DataType.INT64), 1), axis=1)
    return g.op("Squeeze", g.op("Sub", chosen, normalizer), g.i64([1]))
