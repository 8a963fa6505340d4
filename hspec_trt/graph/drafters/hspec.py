# SPDX-License-Identifier: Apache-2.0
"""H-Spec: a block of mamba, attention and mlp sub-layers; mamba starts from a state projected from the target's hidden
states, attention reads the target's own pages. A pure function of anchor, hidden states and pages: no cache of its own.
"""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.contract import MAMBA2_BLOCK_SCAN
from hspec_trt.dtypes import FLOAT32
from hspec_trt.graph.drafters.frame import DraftContext, DraftOutputs, Pages
from hspec_trt.graph.drafters.fusion import fuse, fused_norm
from hspec_trt.graph.drafters.heads import block_embeddings, draft_logits, draw_block
from hspec_trt.graph.layers import linear, rms_norm, rotary_tables, rotate, swiglu


class HSpec:
    """Emits the draft pass of one H-Spec configuration."""

    def __init__(self, config: HSpecConfig) -> None:
        self.config = config

    def begin(self, step: DraftContext) -> Pages:
        """Nothing: the target's pages are the context."""
        return ()

    def draft(self, step: DraftContext) -> DraftOutputs:
        """Record the draft pass."""
        return DraftOutputs(_Pass(self.config, step).drafts())


class _Pass:
    """The draft pass of one step. The residual stream is kept flat, [D * B, H], as Gemm wants it."""

    def __init__(self, config: HSpecConfig, step: DraftContext) -> None:
        self.config, self.step = config, step
        self.s, self.g = step.scope, step.scope.builder
        # A causal block's first slots do not depend on the later ones, so slots beyond G + 1 need not run.
        causal = 0 not in config.attn_windows
        self.block = step.num_drafts + 1 if causal else config.block_size
        slots = self.g.i32([list(range(self.block))])
        positions = self.g.op("Add", self.g.unsqueeze(step.anchor_positions, 1), slots)
        self.lines = self.g.op("Mul", step.num_rows, self.g.i64([self.block]))
        self.tables = rotary_tables(self.s, self.g.reshape(positions, self.lines), config.rope, config.head_dim)

    def drafts(self) -> ir.Value:
        config, g, s = self.config, self.g, self.s
        seeds = self._seeds()
        x = self._flat(block_embeddings(self.step, config, self.block), config.hidden_size)
        mamba = attention = 0
        for index, kind in enumerate(config.block_pattern):
            prefix = f"drafter.layers.{index}"
            if kind == "mamba":
                change = self._mamba(prefix, x, seeds[mamba])
                mamba += 1
            elif kind == "attention":
                change = self._attention(prefix, x, attention)
                attention += 1
            else:
                change = swiglu(s, rms_norm(s, x, f"{prefix}.mlp_norm.weight", config.rms_norm_eps), f"{prefix}.mlp")
            x = g.op("Add", x, change)
            s.probe(f"drafter.sub.{index}", [x])
        hidden = self._blocked(rms_norm(s, x, "drafter.norm.weight", config.rms_norm_eps), config.hidden_size)
        s.probe("drafter.hidden", [hidden])
        return draw_block(self.step, self._logits(hidden), markov_rank=config.markov_rank)

    def _logits(self, hidden: ir.Value) -> ir.Value:
        """float32 [D, G, Vd] of slots 1 .. G: slot k predicts the token at its own position p + k."""
        g, num_drafts = self.g, self.step.num_drafts
        used = g.slice(hidden, 1, num_drafts + 1, 1)
        lines = g.op("Mul", self.step.num_rows, g.i64([num_drafts]))
        logits = draft_logits(self.step, g.reshape(used, lines, self.config.hidden_size))
        logits = g.reshape(logits, self.step.num_rows, num_drafts, self.config.draft_vocab_size)
        self.s.probe("drafter.logits_base", [logits])
        return logits

    def _flat(self, x: ir.Value, width: int) -> ir.Value:
        return self.g.reshape(x, self.lines, width)

    def _blocked(self, x: ir.Value, *dims: int) -> ir.Value:
        return self.g.reshape(x, self.step.num_rows, self.block, *dims)

    def _seeds(self) -> list[ir.Value]:
        """Initial state of each mamba sub-layer, float32 [D, heads, head_dim, state_size]."""
        config, g = self.config, self.g
        count = config.block_pattern.count("mamba")
        dims = (config.mamba_num_heads, config.mamba_head_dim, config.mamba_d_state)
        zero = g.op("Expand", g.f32(0.0), g.shape(self.step.num_rows, *dims))
        if not (config.state_injection and count):
            return [zero] * count
        fused = self._fused()
        seeds = []
        for index in range(config.num_seed_projections):
            projected = linear(self.s, fused, f"drafter.seed_projs.{index}")
            seeds.append(self.s.cast(g.reshape(projected, self.step.num_rows, *dims), FLOAT32))
            self.s.probe(f"drafter.S0.{index}", [seeds[-1]])
        if config.seed_mode == "shared":
            return seeds * count
        return seeds + [zero] * (count - len(seeds))

    def _fused(self) -> ir.Value:
        """z [D, H]: the target's states at position p - 1, fused and normed."""
        config, s, g = self.config, self.s, self.g
        parts = []
        for index, layer in enumerate(config.fused_layers):
            part = g.op("Gather", self.step.states.hidden[layer], self.step.last_tokens)
            if config.fc_norm:
                part = rms_norm(s, part, f"drafter.fc_norm.{index}.weight", config.rms_norm_eps)
            parts.append(part)
        z = fuse(s, g.op("Concat", *parts, axis=1))
        z = fused_norm(s, z, "drafter.hidden_norm.weight", config.rms_norm_eps)
        s.probe("drafter.z", [z])
        return z

    def _mamba(self, prefix: str, x: ir.Value, seed: ir.Value) -> ir.Value:
        config, s, g = self.config, self.s, self.g
        normed = rms_norm(s, x, f"{prefix}.ssm_norm.weight", config.rms_norm_eps)
        projected = linear(s, normed, f"{prefix}.ssm.in_proj")
        sizes = g.i64([config.d_inner, config.conv_dim, config.mamba_num_heads])
        gate, xbc, dt = g.multi("Split", projected, sizes, num_outputs=3, axis=1)
        names = ("conv1d.weight", "conv1d.bias", "dt_bias", "A_log", "D")
        (y,) = s.custom(
            MAMBA2_BLOCK_SCAN,
            self._blocked(xbc, config.conv_dim),
            self._blocked(dt, config.mamba_num_heads),
            *(s.weight(f"{prefix}.ssm.{name}") for name in names),
            seed,
            num_heads=config.mamba_num_heads,
            head_dim=config.mamba_head_dim,
            state_size=config.mamba_d_state,
            n_groups=config.mamba_n_groups,
            conv_kernel=config.mamba_conv_kernel,
            block_size=self.block,
        )
        return linear(s, self._gated_norm(prefix, self._flat(y, config.d_inner), gate), f"{prefix}.ssm.out_proj")

    def _gated_norm(self, prefix: str, y: ir.Value, gate: ir.Value) -> ir.Value:
        """RMS norm of y * silu(gate) over all of d_inner, whatever the number of groups; gate first, in float32."""
        s, g, name = self.s, self.g, f"{prefix}.ssm.norm.weight"
        wide = s.cast(gate, FLOAT32)
        gated = g.op("Mul", s.cast(y, FLOAT32), g.op("Mul", wide, g.op("Sigmoid", wide)))
        return s.cast(rms_norm(s, gated, name, self.config.mamba_norm_eps), s.dtype)

    def _attention(self, prefix: str, x: ir.Value, index: int) -> ir.Value:
        config, s = self.config, self.s
        normed = rms_norm(s, x, f"{prefix}.input_layernorm.weight", config.rms_norm_eps)
        attn = f"{prefix}.self_attn"
        window = config.attn_windows[index]
        (mixed,) = s.custom(
            self.step.block_attention,
            self._rotated(normed, attn, "q", config.num_heads),
            self._rotated(normed, attn, "k", config.num_kv_heads),
            self._blocked(linear(s, normed, f"{attn}.v_proj"), config.num_kv_heads, config.head_dim),
            self.step.states.kv_pages[config.attn_kv_layers[index]],
            self.step.page_table,
            self.step.anchor_positions,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            page_size=self.step.build.page_size,
            scale=config.head_dim**-0.5,
            window=window,
            causal=int(window > 0),
            no_context=int(not config.target_kv_reuse),
        )
        return linear(s, self._flat(mixed, config.num_heads * config.head_dim), f"{attn}.o_proj")

    def _rotated(self, x: ir.Value, attn: str, which: str, num_heads: int) -> ir.Value:
        """Query or key of the block: [D, B, heads, d]."""
        config, s = self.config, self.s
        projected = linear(s, x, f"{attn}.{which}_proj")
        if config.use_qk_norm:
            heads = self._blocked(projected, num_heads, config.head_dim)
            projected = rms_norm(s, heads, f"{attn}.{which}_norm.weight", config.rms_norm_eps)
        turned = rotate(
            s, self.g.reshape(projected, self.lines, num_heads, 1, config.head_dim), self.tables, config.head_dim
        )
        return self._blocked(turned, num_heads, config.head_dim)
