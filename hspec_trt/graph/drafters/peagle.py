# SPDX-License-Identifier: Apache-2.0
"""P-EAGLE: all drafts in one pass. Mask entries follow the last real one and run beside the real ones, so that each
weight is read once; their K and V are never written to the pages.
"""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.config.drafters_eagle import PEagleConfig
from hspec_trt.graph.drafters.eagle import EagleLayers, next_tokens
from hspec_trt.graph.drafters.frame import DraftContext, DraftOutputs, Pages
from hspec_trt.graph.drafters.fusion import raw_states
from hspec_trt.graph.drafters.heads import draw_block, embed_tokens

MASK_STATE = "drafter.mask_hidden"


class PEagle:
    """Emits the draft pass of one P-EAGLE configuration."""

    def __init__(self, config: PEagleConfig) -> None:
        self.config = config
        self.entries: ir.Value | None = None

    def begin(self, step: DraftContext) -> Pages:
        """Run the new entries, and the mask entries of the rows to draft for, if any."""
        run = _Pass(self.config, step)
        self.entries = run.entries()
        return tuple(run.pages)

    def draft(self, step: DraftContext) -> DraftOutputs:
        """Record the choice of drafts from the last real entry and the mask entries."""
        s, g, layers = step.scope, step.scope.builder, EagleLayers(self.config, step)
        num_drafts = step.num_drafts
        lines = g.op("Mul", step.num_rows, g.i64([num_drafts]))
        normed = layers.normed(g.reshape(self._proposing(step), lines, self.config.hidden_size))
        s.probe("drafter.hidden", [normed])
        logits = g.reshape(layers.logits(normed), step.num_rows, num_drafts, self.config.draft_vocab_size)
        s.probe("drafter.logits", [logits])
        return DraftOutputs(draw_block(step, logits, markov_rank=0))

    def _proposing(self, step: DraftContext) -> ir.Value:
        """Hidden stream [D, G, H]: each row's last real entry, then its mask entries."""
        g = step.scope.builder
        last = g.unsqueeze(g.op("Gather", self.entries, step.last_tokens), 1)
        if step.num_drafts == 1:
            return last
        masks = g.op("Slice", self.entries, g.dim(step.rows.token_positions, 0), g.i64([2**31 - 1]), g.i64([0]))
        masks = g.reshape(masks, step.num_rows, step.num_drafts - 1, self.config.hidden_size)
        return g.op("Concat", last, masks, axis=1)


class _Pass:
    """The pass of one step over N real entries, then D * masks mask entries (none in an engine of one draft)."""

    def __init__(self, config: PEagleConfig, step: DraftContext) -> None:
        self.config, self.step = config, step
        self.s, self.g = step.scope, step.scope.builder
        self.layers = EagleLayers(config, step)
        self.masks = step.num_drafts - 1
        self.num_tokens = self.g.dim(step.rows.token_positions, 0)
        self.mask_lines = self.g.op("Mul", step.num_rows, self.g.i64([self.masks]))
        self.pages: list[ir.Value] = []

    def entries(self) -> ir.Value:
        """Hidden stream [N + D * masks, H] before the final norm."""
        embedded = embed_tokens(self.s, self.config, self._token_ids())
        self.s.probe("drafter.embed", [embedded])
        x = self.layers.run(embedded, self._states(), self.layers.lines(self._positions()), self._attend)
        self.s.probe("drafter.entries", [x])
        return x

    def _token_ids(self) -> ir.Value:
        g = self.g
        if not self.masks:
            return next_tokens(self.step)
        masks = g.op("Expand", g.i32(self.config.mask_token_id), self.mask_lines)
        return g.op("Concat", next_tokens(self.step), masks, axis=0)

    def _states(self) -> ir.Value:
        """``g`` of all entries. The mask state is fused like a real one, once, as one more line."""
        g, hidden = self.g, self.config.hidden_size
        if not self.masks:
            return self.layers.fuse(raw_states(self.step, self.config))
        raw = g.reshape(self.s.weight(MASK_STATE), 1, len(self.config.fused_layers) * hidden)
        parts = []
        for index, state in enumerate(raw_states(self.step, self.config)):
            mask = g.slice(raw, index * hidden, (index + 1) * hidden, 1)
            parts.append(g.op("Concat", state, mask, axis=0))
        fused = self.layers.fuse(parts)
        masks = g.op("Expand", self._mask_part(fused), g.shape(self.mask_lines, hidden))
        states = g.op("Concat", self._real_part(fused), masks, axis=0)
        self.s.probe("drafter.g", [states])
        return states

    def _positions(self) -> ir.Value:
        g, step = self.g, self.step
        if not self.masks:
            return step.rows.token_positions
        slots = g.op("Add", g.unsqueeze(step.anchor_positions, 1), g.i32([list(range(self.masks))]))
        return g.op("Concat", step.rows.token_positions, g.reshape(slots, self.mask_lines), axis=0)

    def _attend(self, layer: int, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        g, config = self.g, self.config
        if not self.masks:
            mixed, pages = self.layers.paged_attention(layer, query, key, value)
            self.pages.append(pages)
            return mixed
        real = (self._real_part(part) for part in (query, key, value))
        mixed, pages = self.layers.paged_attention(layer, *real)
        self.pages.append(pages)
        heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        blocks = [
            g.reshape(self._mask_part(part), self.step.num_rows, self.masks, count, config.head_dim)
            for part, count in zip((query, key, value), heads, strict=True)
        ]
        ahead = self.layers.block_attention(layer, (blocks[0], blocks[1], blocks[2]), pages)
        ahead = g.reshape(ahead, self.mask_lines, config.num_heads * config.head_dim)
        return g.op("Concat", mixed, ahead, axis=0)

    def _real_part(self, x: ir.Value) -> ir.Value:
        return self.g.op("Slice", x, self.g.i64([0]), self.num_tokens, self.g.i64([0]))

    def _mask_part(self, x: ir.Value) -> ir.Value:
        return self.g.op("Slice", x, self.num_tokens, self.g.i64([2**31 - 1]), self.g.i64([0]))
