# SPDX-License-Identifier: Apache-2.0
"""EAGLE-3: one pass over the new entries, then a serial pass for each further draft, which feeds on its own output.

K and V of the serial passes are never written to the pages: the next step's real entries take their places.
"""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.config.drafters_eagle import Eagle3Config
from hspec_trt.graph.drafters.eagle import EagleLayers, next_tokens
from hspec_trt.graph.drafters.frame import DraftContext, DraftOutputs, Pages
from hspec_trt.graph.drafters.fusion import raw_states, widened
from hspec_trt.graph.drafters.heads import draft_token_ids, embed_tokens


class Eagle3:
    """Emits the draft pass of one EAGLE-3 configuration."""

    def __init__(self, config: Eagle3Config) -> None:
        self.config = config
        self.pages: list[ir.Value] = []
        self.entries: ir.Value | None = None

    def begin(self, step: DraftContext) -> Pages:
        """Run the new entries."""
        s, layers = step.scope, EagleLayers(self.config, step)

        def attend(layer: int, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
            mixed, pages = layers.paged_attention(layer, query, key, value)
            self.pages.append(pages)
            return mixed

        states = layers.fuse(raw_states(step, self.config))
        s.probe("drafter.g", [states])
        embedded = embed_tokens(s, self.config, next_tokens(step))
        self.entries = layers.run(embedded, states, layers.lines(step.rows.token_positions), attend)
        s.probe("drafter.entries", [self.entries])
        return tuple(self.pages)

    def draft(self, step: DraftContext) -> DraftOutputs:
        """Record the chain that starts from each row's last entry."""
        last = step.scope.builder.op("Gather", self.entries, step.last_tokens)
        return DraftOutputs(_Chain(self.config, step, self.pages).drafts(last))


class _Chain:
    """The serial passes of one step."""

    def __init__(self, config: Eagle3Config, step: DraftContext, pages: list[ir.Value]) -> None:
        self.config, self.step, self.pages = config, step, pages
        self.s, self.g = step.scope, step.scope.builder
        self.layers = EagleLayers(config, step)
        self.heads: list[list[tuple[ir.Value, ir.Value, ir.Value]]] = [[] for _ in config.windows]

    def drafts(self, x: ir.Value) -> ir.Value:
        """int32 [D, G], from the hidden stream [D, H] of the last real entries."""
        g, step = self.g, self.step
        token_ids, drawn, scores = draft_token_ids(step), [], []
        token, feedback = step.anchor_ids, x
        for link in range(step.num_drafts):
            if link:
                x = self._link(token, feedback, g.op("Add", step.anchor_positions, g.i32(link - 1)))
            normed = self.layers.normed(x)
            feedback = widened(self.s, normed) if self.config.norm_output else x
            logits = self.layers.logits(normed)
            token = step.draw(logits, token_ids, link + 1)
            drawn.append(g.unsqueeze(token, 1))
            scores.append(g.unsqueeze(logits, 1))
        self.s.probe("drafter.logits", scores)
        return g.op("Concat", *drawn, axis=1)

    def _link(self, token: ir.Value, state: ir.Value, position: ir.Value) -> ir.Value:
        """Hidden stream [D, H] of the entry of a drafted token and the state fed back."""
        embedded = embed_tokens(self.s, self.config, token)
        return self.layers.run(embedded, state, self.layers.lines(position), self._attend)

    def _attend(self, layer: int, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        """The newest link attends over the pages and over the links before it, whose heads are kept."""
        g, config = self.g, self.config
        self.heads[layer].append((g.unsqueeze(query, 1), g.unsqueeze(key, 1), g.unsqueeze(value, 1)))
        joined = [g.op("Concat", *parts, axis=1) for parts in zip(*self.heads[layer], strict=True)]
        mixed = self.layers.block_attention(layer, (joined[0], joined[1], joined[2]), self.pages[layer])
        newest = g.op("Gather", mixed, g.i64(len(self.heads[layer]) - 1), axis=1)
        return g.reshape(newest, self.step.num_rows, config.num_heads * config.head_dim)
