# SPDX-License-Identifier: Apache-2.0
"""The target's decoder layers over packed tokens, with K and V in pages. Knows nothing of verification or drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from hspec_trt.config.target import TargetConfig
from hspec_trt.contract import PAGED_ATTENTION, kv_pages, kv_pages_out
from hspec_trt.dtypes import FLOAT32
from hspec_trt.graph.layers import VECTOR_WIDTH, RotaryTables, Scope, linear, rms_norm, rotary_tables, rotate, swiglu
from hspec_trt.graph.rows import PackedRows

EMBEDDING = "target.model.embed_tokens.weight"
HEAD = "target.lm_head.weight"
NEVER = -1e30
"""Logit of a token that is not there; finite, so that a row of logits stays finite."""


@dataclass(frozen=True)
class TargetStates:
    """What a step has of the target.

    Attributes:
        hidden: h^(L) [N, H] for L = 0 .. num_layers: the residual stream after L layers.
        kv_pages: per layer, the pages with this step's K and V.
    """

    hidden: tuple[ir.Value, ...]
    kv_pages: tuple[ir.Value, ...]


def target_layers(
    s: Scope, config: TargetConfig, inputs: Mapping[str, ir.Value], rows: PackedRows, page_size: int
) -> TargetStates:
    """Run all decoder layers over the packed tokens."""
    g = s.builder
    decoder = _Decoder(s, config, inputs, rows, page_size)
    hidden = [g.op("Gather", s.weight(EMBEDDING), inputs["input_ids"])]
    pages = []
    s.probe("target.hidden.0", [hidden[0]])
    for layer in range(config.num_layers):
        after, layer_pages = decoder.layer(layer, hidden[-1])
        hidden.append(after)
        pages.append(layer_pages)
        s.probe(f"target.hidden.{layer + 1}", [after])
    return TargetStates(tuple(hidden), tuple(pages))


def target_logits(s: Scope, config: TargetConfig, hidden: ir.Value) -> ir.Value:
    """Logits float32 of final-layer states [K, H]: [K, V], widened to `padded_vocab` columns that are never drawn.

    Rows of the table beyond the vocabulary are left out.
    """
    g = s.builder
    normed = rms_norm(s, hidden, "target.model.norm.weight", config.rms_norm_eps)
    logits = s.cast(g.op("Gemm", normed, head_weight(s, config), transB=1), FLOAT32)
    missing = padded_vocab(config.vocab_size) - config.vocab_size
    if missing:
        never = g.op("Expand", g.f32(NEVER), g.shape(g.dim(hidden, 0), missing))
        logits = g.op("Concat", logits, never, axis=1)
    return logits


def padded_vocab(vocab_size: int) -> int:
    """Columns of the target's logits: the vocabulary, rounded up to whole vectors (see `VECTOR_WIDTH`)."""
    return vocab_size + -vocab_size % VECTOR_WIDTH


def head_weight(s: Scope, config: TargetConfig) -> ir.Value:
    """The target's head [V, H]: its own, or the embedding table where the two are tied."""
    return s.weight(HEAD if s.has(HEAD) else EMBEDDING, rows=config.vocab_size)


class _Decoder:
    """One decoder layer after the other, with what all of them share."""

    def __init__(
        self, s: Scope, config: TargetConfig, inputs: Mapping[str, ir.Value], rows: PackedRows, page_size: int
    ) -> None:
        self.s, self.config, self.inputs, self.rows, self.page_size = s, config, inputs, rows, page_size
        self.tables: RotaryTables = rotary_tables(s, rows.token_positions, config.rope, config.head_dim)

    def layer(self, layer: int, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """h^(layer) [N, H] to h^(layer + 1), and the layer's pages."""
        s, g, prefix = self.s, self.s.builder, f"target.model.layers.{layer}"
        eps = self.config.rms_norm_eps
        mixed, pages = self._attention(layer, rms_norm(s, x, f"{prefix}.input_layernorm.weight", eps))
        x = g.op("Add", x, mixed)
        normed = rms_norm(s, x, f"{prefix}.post_attention_layernorm.weight", eps)
        return g.op("Add", x, swiglu(s, normed, f"{prefix}.mlp")), pages

    def _attention(self, layer: int, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        s, g, config = self.s, self.s.builder, self.config
        prefix = f"target.model.layers.{layer}.self_attn"
        query = self._rotated(x, prefix, "q", config.num_heads)
        key = self._rotated(x, prefix, "k", config.num_kv_heads)
        value = g.reshape(linear(s, x, f"{prefix}.v_proj"), -1, config.num_kv_heads, config.head_dim)
        mixed, pages = s.custom(
            PAGED_ATTENTION,
            query,
            key,
            value,
            self.inputs[kv_pages(layer).name],
            *(self.inputs[name] for name in ("cu_query_lens", "context_lens", "page_table", "query_slots")),
            self.rows.token_rows,
            self.rows.token_positions,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            page_size=self.page_size,
            scale=config.scale,
            window=config.window(layer),
        )
        pages.name = kv_pages_out(layer).name
        return linear(s, g.reshape(mixed, -1, config.num_heads * config.head_dim), f"{prefix}.o_proj"), pages

    def _rotated(self, x: ir.Value, prefix: str, which: str, num_heads: int) -> ir.Value:
        """Query or key: projected, normed where the family does so, rotated; [N, heads, d]."""
        s, g, head_dim = self.s, self.s.builder, self.config.head_dim
        projected = linear(s, x, f"{prefix}.{which}_proj")
        if self.config.qk_norm:
            heads = g.reshape(projected, -1, num_heads, head_dim)
            projected = rms_norm(s, heads, f"{prefix}.{which}_norm.weight", self.config.rms_norm_eps)
        turned = rotate(s, g.reshape(projected, -1, num_heads, 1, head_dim), self.tables, head_dim)
        return g.reshape(turned, -1, num_heads, head_dim)
