# SPDX-License-Identifier: Apache-2.0
"""H-Spec in PyTorch: the trainable reference of the drafter.

Owns the forward pass of one block per anchor. Where the inputs come from, and what is done with the last hidden state,
is for others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.modeling.attention import (
    BlockView,
    DraftAttention,
    KeyValue,
    WindowEdge,
    block_mask,
    block_positions,
    context_mask,
)
from hspec_trt.modeling.block import BlockDrafter, BlockInputs, SharedTables
from hspec_trt.modeling.layers import RMSNorm, RopeTables, SwiGLU, rope_tables
from hspec_trt.modeling.mamba import Mamba2Mixer
from hspec_trt.modeling.markov import ConfidenceHead, MarkovHead


@dataclass
class BlockTrace:
    """Inner values for tests: ``z`` ``[S, A, hidden]``, the seeds, and the stream after every sub-layer."""

    z: Tensor | None = None
    seeds: list[Tensor] = field(default_factory=list)
    sub_layers: list[Tensor] = field(default_factory=list)


class _MambaLayer(nn.Module):
    def __init__(self, config: HSpecConfig) -> None:
        super().__init__()
        self.ssm_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.ssm = Mamba2Mixer(
            config.hidden_size,
            num_heads=config.mamba_num_heads,
            head_dim=config.mamba_head_dim,
            d_state=config.mamba_d_state,
            n_groups=config.mamba_n_groups,
            conv_kernel=config.mamba_conv_kernel,
            norm_eps=config.mamba_norm_eps,
        )

    def forward(self, x: Tensor, seed: Tensor | None) -> Tensor:
        """``[S, A, B, hidden]`` to the same; every block starts from its seed."""
        mixed: Tensor = self.ssm(self.ssm_norm(x).flatten(0, 1), seed)
        return mixed.view_as(x)


class _AttentionLayer(nn.Module):
    def __init__(self, config: HSpecConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DraftAttention(
            config.hidden_size,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            eps=config.rms_norm_eps,
            qk_norm=config.use_qk_norm,
            bias=config.attention_bias,
        )

    def forward(self, x: Tensor, tables: RopeTables, context: KeyValue, masks: tuple[Tensor, Tensor]) -> Tensor:
        """``[S, A, B, hidden]`` to the same; arguments as for `DraftAttention`."""
        mixed: Tensor = self.self_attn(self.input_layernorm(x), tables, context, masks)
        return mixed


class _MlpLayer(nn.Module):
    def __init__(self, config: HSpecConfig) -> None:
        super().__init__()
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = SwiGLU(config.hidden_size, config.intermediate_size)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., hidden]`` to the same."""
        mixed: Tensor = self.mlp(self.mlp_norm(x))
        return mixed


_LAYERS = {"mamba": _MambaLayer, "attention": _AttentionLayer, "mlp": _MlpLayer}


class HSpecModel(BlockDrafter):
    """The drafter: Mamba sub-layers seeded by the target's state, attention over the target's own K and V."""

    def __init__(self, config: HSpecConfig, tables: SharedTables) -> None:
        super().__init__(tables)
        self.config = config
        hidden, eps = config.hidden_size, config.rms_norm_eps
        if config.state_injection:
            states = len(config.fused_layers)
            self.fc = nn.Linear(states * hidden, hidden, bias=False)
            self.fc_norm = nn.ModuleList(RMSNorm(hidden, eps) for _ in range(states if config.fc_norm else 0))
            self.hidden_norm = RMSNorm(hidden, eps)
            self.seed_projs = nn.ModuleList(
                nn.Linear(hidden, config.d_inner * config.mamba_d_state, bias=False)
                for _ in range(config.num_seed_projections)
            )
        self.layers = nn.ModuleList(_LAYERS[kind](config) for kind in config.block_pattern)
        self.norm = RMSNorm(hidden, eps)
        rank = config.markov_rank
        if rank:
            self.markov_head = MarkovHead(config.vocab_size, config.draft_vocab_size, rank)
        if config.confidence_head:
            self.confidence_head = ConfidenceHead(hidden + (rank if config.confidence_with_markov else 0))

    @property
    def drafter_config(self) -> HSpecConfig:
        """The configuration."""
        return self.config

    @property
    def causal(self) -> bool:
        """True where a slot depends on no later one."""
        return all(self.config.attn_windows)

    def hidden(
        self,
        inputs: BlockInputs,
        *,
        num_slots: int | None = None,
        window_edge: WindowEdge = "slot",
        trace: BlockTrace | None = None,
    ) -> Tensor:
        """Run the blocks, see `BlockDrafter.hidden`.

        Args:
            trace: gets the inner values.
        """
        slots = num_slots or self.config.block_size
        seeds = self._seeds(inputs.fused, trace)
        x = self.embed_blocks(inputs, slots, self.config.mask_token_id)
        masks = self._masks(inputs, slots, window_edge)
        tables = rope_tables(self.config.rope, self.config.head_dim, block_positions(inputs.anchors, slots))
        mamba = attention = 0
        for kind, layer in zip(self.config.block_pattern, self.layers, strict=True):
            if kind == "mamba":
                mixed = layer(x, seeds[mamba])
                mamba += 1
            elif kind == "attention":
                source, window = self.config.attn_kv_layers[attention], self.config.attn_windows[attention]
                context = inputs.keys[source], inputs.values[source]
                mixed = layer(x, tables, context, masks[window])
                attention += 1
            else:
                mixed = layer(x)
            x = x + mixed.float()
            if trace is not None:
                trace.sub_layers.append(x)
        out: Tensor = self.norm(x)
        return out

    def _seeds(self, fused: Tensor, trace: BlockTrace | None) -> list[Tensor | None]:
        """Initial state ``[S * A, heads, head_dim, d_state]`` of each mamba sub-layer."""
        config, count = self.config, self.config.block_pattern.count("mamba")
        if not config.state_injection:
            return [None] * count
        if config.fc_norm:
            parts = fused.float().chunk(len(config.fused_layers), dim=-1)
            fused = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        z = self.hidden_norm(self.fc(fused.float()).float())
        shape = (-1, config.mamba_num_heads, config.mamba_head_dim, config.mamba_d_state)
        seeds: list[Tensor | None] = [projection(z).float().reshape(shape) for projection in self.seed_projs]
        if trace is not None:
            trace.z, trace.seeds = z, [seed for seed in seeds if seed is not None]
        if config.seed_mode == "per_layer":
            return seeds
        return seeds * count if config.seed_mode == "shared" else seeds + [None] * (count - 1)

    def _masks(self, inputs: BlockInputs, slots: int, edge: WindowEdge) -> dict[int, tuple[Tensor, Tensor]]:
        """Visibility of context and block for each window that occurs."""
        length = next(iter(inputs.keys.values())).shape[1] if inputs.keys else 0
        masks = {}
        for window in set(self.config.attn_windows):
            # A sliding sub-layer is causal inside the block, a full one bidirectional.
            view = BlockView(window, causal=window > 0, context=self.config.target_kv_reuse, edge=edge)
            far = context_mask(inputs.anchors, block_size=slots, context_len=length, view=view)
            masks[window] = far, block_mask(slots, view, inputs.anchors.device)
        return masks
