# SPDX-License-Identifier: Apache-2.0
"""DFlash: a block attends over K and V projected from fused target states, which are kept in pages of its own.

The pages follow the target's page table and are written in every step, for every packed token; rows of rejected
drafts lie beyond the anchor, where nobody looks, until the tokens that replace them overwrite them.
"""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.config.drafters_block import DFlashConfig
from hspec_trt.contract import APPEND_KV, kv_pages, kv_pages_out
from hspec_trt.graph.drafters.frame import DraftContext, DraftOutputs, Pages
from hspec_trt.graph.drafters.fusion import fuse, fused_norm, raw_states
from hspec_trt.graph.drafters.heads import block_embeddings, draft_logits, draw_block
from hspec_trt.graph.layers import Lines, Scope, linear, rms_norm, rotary_lines, rotate, swiglu


class DFlash:
    """Emits the draft pass of one DFlash configuration."""

    def __init__(self, config: DFlashConfig) -> None:
        self.config = config
        self.pages: Pages = ()

    def begin(self, step: DraftContext) -> Pages:
        """Project this step's target states to K and V of every draft layer."""
        self.pages = append_context(self.config, step)
        return self.pages

    def draft(self, step: DraftContext) -> DraftOutputs:
        """Record the draft pass."""
        block = BlockPass(self.config, step, self.pages)
        return DraftOutputs(draw_block(step, block.logits(block.hidden()), markov_rank=0))


def append_context(config: DFlashConfig, step: DraftContext) -> Pages:
    """Pages of each draft layer with K and V of the step's packed tokens."""
    s, g = step.scope, step.scope.builder
    features = fuse(s, g.op("Concat", *raw_states(step, config), axis=1))
    features = fused_norm(s, features, "drafter.hidden_norm.weight", config.rms_norm_eps)
    s.probe("drafter.C", [features])
    lines = rotary_lines(s, step.rows.token_positions, config.rope, config.head_dim)
    return tuple(_append(config, step, layer, features, lines) for layer in range(len(config.windows)))


def _append(config: DFlashConfig, step: DraftContext, layer: int, features: ir.Value, lines: Lines) -> ir.Value:
    s, rows = step.scope, step.rows
    (pages,) = s.custom(
        APPEND_KV,
        _heads(s, config, layer, "k", features, lines),
        _heads(s, config, layer, "v", features, lines),
        step.inputs[kv_pages(layer, drafter=True).name],
        step.inputs["page_table"],
        rows.token_rows,
        rows.token_positions,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        page_size=step.build.page_size,
    )
    pages.name = kv_pages_out(layer, drafter=True).name
    return pages


def _heads(s: Scope, config: DFlashConfig, layer: int, which: str, x: ir.Value, lines: Lines) -> ir.Value:
    """Query, key (both normed and rotated) or value [lines, heads, d] of states [lines, H]."""
    g, prefix, head_dim = s.builder, f"drafter.layers.{layer}.self_attn", config.head_dim
    num_heads = config.num_heads if which == "q" else config.num_kv_heads
    heads = g.reshape(linear(s, x, f"{prefix}.{which}_proj"), lines.count, num_heads, 1, head_dim)
    if which != "v":
        heads = rms_norm(s, heads, f"{prefix}.{which}_norm.weight", config.rms_norm_eps)
        heads = rotate(s, heads, lines.tables, head_dim)
    return g.reshape(heads, lines.count, num_heads, head_dim)


class BlockPass:
    """The layers that DFlash and DSpark share. The residual stream of the blocks is kept flat, [D * B, H]."""

    def __init__(self, config: DFlashConfig, step: DraftContext, pages: Pages) -> None:
        self.config, self.step, self.pages = config, step, pages
        self.s, self.g = step.scope, step.scope.builder
        # A causal block's first slots do not depend on the later ones, so slots that propose nothing need not run.
        self.block = config.first_slot + step.num_drafts if all(config.causal) else config.block_size
        self.count = self.g.op("Mul", step.num_rows, self.g.i64([self.block]))
        slots = self.g.op("Add", self.g.unsqueeze(step.anchor_positions, 1), self.g.i32([list(range(self.block))]))
        self.lines = rotary_lines(self.s, self.g.reshape(slots, self.count), config.rope, config.head_dim)

    def hidden(self) -> ir.Value:
        """Final hidden states [D * B, H]."""
        config, s, g = self.config, self.s, self.g
        x = g.reshape(block_embeddings(self.step, config, self.block), self.count, config.hidden_size)
        s.probe("drafter.embed", [x])
        for layer in range(len(config.windows)):
            prefix = f"drafter.layers.{layer}"
            normed = rms_norm(s, x, f"{prefix}.input_layernorm.weight", config.rms_norm_eps)
            x = g.op("Add", x, self._attention(layer, normed))
            normed = rms_norm(s, x, f"{prefix}.post_attention_layernorm.weight", config.rms_norm_eps)
            x = g.op("Add", x, swiglu(s, normed, f"{prefix}.mlp"))
            s.probe(f"drafter.layer.{layer}", [x])
        hidden = rms_norm(s, x, "drafter.norm.weight", config.rms_norm_eps)
        s.probe("drafter.hidden", [hidden])
        return hidden

    def logits(self, hidden: ir.Value) -> ir.Value:
        """float32 [D, G, Vd] of the slots that propose, the tokens at p + 1 .. p + G."""
        num_drafts = self.step.num_drafts
        count = self.g.op("Mul", self.step.num_rows, self.g.i64([num_drafts]))
        used = self.g.reshape(self.proposing(hidden), count, self.config.hidden_size)
        logits = draft_logits(self.step, used)
        logits = self.g.reshape(logits, self.step.num_rows, num_drafts, self.config.draft_vocab_size)
        self.s.probe("drafter.logits_base", [logits])
        return logits

    def proposing(self, hidden: ir.Value) -> ir.Value:
        """Final hidden states [D, G, H] of the slots that propose."""
        first = self.config.first_slot
        return self.g.slice(self.slots(hidden), first, first + self.step.num_drafts, 1)

    def slots(self, hidden: ir.Value) -> ir.Value:
        """Final hidden states [D, B, H] of all slots."""
        return self.g.reshape(hidden, self.step.num_rows, self.block, self.config.hidden_size)

    def _attention(self, layer: int, x: ir.Value) -> ir.Value:
        config, s, step = self.config, self.s, self.step
        counts = {"q": config.num_heads, "k": config.num_kv_heads, "v": config.num_kv_heads}
        (mixed,) = s.custom(
            step.block_attention,
            *(self._blocked(_heads(s, config, layer, which, x, self.lines), n) for which, n in counts.items()),
            self.pages[layer],
            step.page_table,
            step.anchor_positions,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            page_size=step.build.page_size,
            scale=config.head_dim**-0.5,
            window=config.windows[layer],
            causal=int(config.causal[layer]),
            no_context=0,
        )
        flat = self.g.reshape(mixed, self.count, config.num_heads * config.head_dim)
        return linear(s, flat, f"drafter.layers.{layer}.self_attn.o_proj")

    def _blocked(self, x: ir.Value, num_heads: int) -> ir.Value:
        return self.g.reshape(x, self.step.num_rows, self.block, num_heads, self.config.head_dim)
