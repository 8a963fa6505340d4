# SPDX-License-Identifier: Apache-2.0
"""What EAGLE-3 and P-EAGLE share: entries (next token, fused state), their layers, and a cache in pages of their own.

Entry t pairs the token at position t + 1 with the target's state of the token at t, and lies at position t of the
pages, which follow the target's page table. The token that follows a verified one is the one drawn from its logits.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from hspec_trt.config.drafters_eagle import Eagle3Config
from hspec_trt.contract import NEXT_IDS, PAGED_ATTENTION, SHARED_KV_ATTENTION, kv_pages, kv_pages_out
from hspec_trt.graph.drafters.frame import DraftContext
from hspec_trt.graph.drafters.fusion import fuse, fused_norm, widened
from hspec_trt.graph.drafters.heads import draft_logits
from hspec_trt.graph.layers import Lines, Scope, linear, rms_norm, rotary_lines, rotate, swiglu

Attend = Callable[[int, ir.Value, ir.Value, ir.Value], ir.Value]
"""Attention of one layer: (layer, query, key, value), each [rows, heads, d], to [rows, heads * d]."""


def next_tokens(step: DraftContext) -> ir.Value:
    """Token that follows each packed token in its text, int32 [N].

    After a rejected draft it is the token drawn there; such entries lie beyond the anchor and are never looked at.
    """
    g, inputs = step.scope.builder, step.inputs
    num_tokens = g.dim(inputs["input_ids"], 0)
    ends = g.op("Slice", inputs["cu_query_lens"], g.i64([1]), g.i64([2**31 - 1]), g.i64([0]))
    row = g.op("Min", step.rows.token_rows, g.cast(g.op("Sub", g.dim(ends, 0), g.i64([1])), ir.DataType.INT32))
    index = g.cast(g.iota(num_tokens), ir.DataType.INT32)
    is_last = g.op("GreaterOrEqual", g.op("Add", index, g.i32(1)), g.op("Gather", ends, row))
    after = g.op("Slice", inputs["input_ids"], g.i64([1]), g.i64([2**31 - 1]), g.i64([0]))
    after = g.op("Concat", after, g.i32([0]), axis=0)
    text = g.op("Where", is_last, g.op("Gather", inputs[NEXT_IDS.name], row), after)
    return _with_drawn(step, text, num_tokens)


def _with_drawn(step: DraftContext, text: ir.Value, num_tokens: ir.Value) -> ir.Value:
    """Where a packed token was verified, the token drawn from its logits instead."""
    g, inputs = step.scope.builder, step.inputs
    count = g.op("Slice", inputs["cu_verify_lens"], g.i64([-1]), g.i64([2**31 - 1]), g.i64([0]))
    real = g.op("Less", g.cast(g.iota(g.dim(inputs["verify_rows"], 0)), ir.DataType.INT32), count)
    place = g.op("Where", real, g.cast(inputs["verify_rows"], ir.DataType.INT64), num_tokens)
    spare = g.op("Concat", text, g.i32([0]), axis=0)  # padding rows of logits write here
    written = g.op("ScatterND", spare, g.unsqueeze(place, 1), step.drawn_ids)
    return g.op("Slice", written, g.i64([0]), num_tokens, g.i64([0]))


class EagleLayers:
    """The draft layers over any lines, each line being an entry."""

    def __init__(self, config: Eagle3Config, step: DraftContext) -> None:
        self.config, self.step = config, step
        self.s: Scope = step.scope
        self.g = step.scope.builder

    def fuse(self, states: list[ir.Value]) -> ir.Value:
        """``g`` [rows, H] of the states [rows, H] of each fused layer, in `fused_dtype`."""
        config, s = self.config, self.s
        if config.fc_norm:
            states = [
                rms_norm(s, state, f"drafter.fc_norm.{index}.weight", config.rms_norm_eps)
                for index, state in enumerate(states)
            ]
        joined = self.g.op("Concat", *states, axis=1)
        if config.norm_before_fc:
            joined = rms_norm(s, joined, "drafter.input_norm.weight", config.rms_norm_eps)
        return fuse(s, joined)

    def lines(self, positions: ir.Value) -> Lines:
        """Lines at rotary positions int32 [rows]."""
        return rotary_lines(self.s, positions, self.config.rope, self.config.head_dim)

    def run(self, embedded: ir.Value, x: ir.Value, lines: Lines, attend: Attend) -> ir.Value:
        """Hidden stream [rows, H] before the final norm, of token embeddings and fused states [rows, H].

        Without norm_before_residual the plain ``g`` is part of the stream, so the whole stream (and `x`) is of
        `fused_dtype`: every reader norms it first.
        """
        config, s, g, eps = self.config, self.s, self.g, self.config.rms_norm_eps
        for layer in range(len(config.windows)):
            prefix = f"drafter.layers.{layer}"
            residual = x
            if layer == 0:
                state = fused_norm(s, x, f"{prefix}.hidden_norm.weight", eps)
                residual = widened(s, state) if config.norm_before_residual else x
                normed = rms_norm(s, embedded, f"{prefix}.input_layernorm.weight", eps)
                normed = g.op("Concat", normed, state, axis=1)
            else:
                normed = fused_norm(s, x, f"{prefix}.input_layernorm.weight", eps)
            heads = [self._heads(normed, prefix, which, lines) for which in "qkv"]
            mixed = linear(s, attend(layer, *heads), f"{prefix}.self_attn.o_proj")
            x = g.op("Add", residual, widened(s, mixed))
            normed = fused_norm(s, x, f"{prefix}.post_attention_layernorm.weight", eps)
            x = g.op("Add", x, widened(s, swiglu(s, normed, f"{prefix}.mlp")))
        return x

    def normed(self, x: ir.Value) -> ir.Value:
        """The stream after the final norm, in the engine's type."""
        return fused_norm(self.s, x, "drafter.norm.weight", self.config.rms_norm_eps)

    def logits(self, normed: ir.Value) -> ir.Value:
        """float32 [rows, Vd]."""
        return draft_logits(self.step, normed)

    def paged_attention(self, layer: int, query: ir.Value, key: ir.Value, value: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Real entries: append K and V, attend to all before: [N, heads * d] and the layer's pages."""
        config, step = self.config, self.step
        mixed, pages = self.s.custom(
            PAGED_ATTENTION,
            query,
            key,
            value,
            step.inputs[kv_pages(layer, drafter=True).name],
            *(step.inputs[name] for name in ("cu_query_lens", "context_lens", "page_table", "query_slots")),
            step.rows.token_rows,
            step.rows.token_positions,
            **self._sizes(layer),
        )
        pages.name = kv_pages_out(layer, drafter=True).name
        lines = self.g.dim(step.rows.token_positions, 0)
        return self.g.reshape(mixed, lines, config.num_heads * config.head_dim), pages

    def block_attention(self, layer: int, heads: tuple[ir.Value, ir.Value, ir.Value], pages: ir.Value) -> ir.Value:
        """Entries that are not kept: over the pages before the anchor and causally over themselves.

        Args:
            heads: query [D, slots, heads, d], key and value [D, slots, kv_heads, d]; slot k sits at position p + k.
        """
        step = self.step
        (mixed,) = self.s.custom(
            SHARED_KV_ATTENTION,
            *heads,
            pages,
            step.page_table,
            step.anchor_positions,
            **self._sizes(layer),
            causal=1,
            no_context=0,
        )
        return mixed

    def _sizes(self, layer: int) -> dict[str, int | float]:
        config = self.config
        return {
            "num_heads": config.num_heads,
            "num_kv_heads": config.num_kv_heads,
            "head_dim": config.head_dim,
            "page_size": self.step.build.page_size,
            "scale": config.head_dim**-0.5,
            "window": config.windows[layer],
        }

    def _heads(self, x: ir.Value, prefix: str, which: str, lines: Lines) -> ir.Value:
        """[rows, heads, d]; query and key normed where the layers are of that type, and rotated."""
        config, s, g = self.config, self.s, self.g
        num_heads = config.num_heads if which == "q" else config.num_kv_heads
        heads = g.reshape(linear(s, x, f"{prefix}.self_attn.{which}_proj"), lines.count, num_heads, 1, config.head_dim)
        if which != "v":
            if config.qk_norm:
                heads = rms_norm(s, heads, f"{prefix}.self_attn.{which}_norm.weight", config.rms_norm_eps)
            heads = rotate(s, heads, lines.tables, config.head_dim)
        return g.reshape(heads, lines.count, num_heads, config.head_dim)
