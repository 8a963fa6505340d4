# SPDX-License-Identifier: Apache-2.0
"""DFlash in PyTorch: the trainable reference of the drafter.

Owns the forward pass of one block per anchor over K and V that it projects from fused target states. What is done with
the last hidden state is `hspec_trt.modeling.block`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from hspec_trt.config.drafters_block import DFlashConfig
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


@dataclass
class DFlashTrace:
    """Inner values for tests: context features ``[S, T, hidden]``, context K and V and the stream of every layer."""

    features: Tensor | None = None
    context: list[KeyValue] = field(default_factory=list)
    layers: list[Tensor] = field(default_factory=list)


class DFlashLayer(nn.Module):
    """One pre-norm draft layer."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DraftAttention(
            config.hidden_size,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            eps=config.rms_norm_eps,
            qk_norm=True,
            bias=config.attention_bias,
        )
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = SwiGLU(config.hidden_size, config.intermediate_size)

    def forward(self, x: Tensor, tables: RopeTables, context: KeyValue, masks: tuple[Tensor, Tensor]) -> Tensor:
        """``[S, A, B, hidden]`` to the same; arguments as for `DraftAttention`."""
        x = x + self.self_attn(self.input_layernorm(x), tables, context, masks).float()
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x)).float()
        return out


class DFlashModel(BlockDrafter):
    """The drafter. `BlockInputs.context` must hold the states of every token before the last anchor."""

    def __init__(self, config: DFlashConfig, tables: SharedTables) -> None:
        super().__init__(tables)
        self.config = config
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(len(config.fused_layers) * hidden, hidden, bias=False)
        self.hidden_norm = RMSNorm(hidden, eps)
        self.layers = nn.ModuleList(DFlashLayer(config) for _ in config.windows)
        self.norm = RMSNorm(hidden, eps)
        if config.mask_embedding:
            self.mask_embedding = nn.Parameter(torch.zeros(hidden))

    @property
    def drafter_config(self) -> DFlashConfig:
        """The configuration."""
        return self.config

    @property
    def causal(self) -> bool:
        """True where a slot depends on no later one."""
        return all(self.config.causal)

    @property
    def first_slot(self) -> int:
        """First slot that proposes a token."""
        return self.config.first_slot

    def hidden(
        self,
        inputs: BlockInputs,
        *,
        num_slots: int | None = None,
        window_edge: WindowEdge = "slot",
        trace: DFlashTrace | None = None,
    ) -> Tensor:
        """Run the blocks, see `BlockDrafter.hidden`.

        Args:
            trace: gets the inner values.
        """
        config, slots = self.config, num_slots or self.config.block_size
        features = self._features(inputs)
        positions = torch.arange(features.shape[1], device=features.device)
        far_tables = rope_tables(config.rope, config.head_dim, positions)
        tables = rope_tables(config.rope, config.head_dim, block_positions(inputs.anchors, slots))
        x = self.embed_blocks(inputs, slots, config.mask_token_id)
        if config.mask_embedding:
            x[..., 1:, :] = self.mask_embedding
        if trace is not None:
            trace.features = features
        layers = cast("Sequence[DFlashLayer]", self.layers)
        for layer, window, causal in zip(layers, config.windows, config.causal, strict=True):
            view = BlockView(window, causal, edge=window_edge)
            far = context_mask(inputs.anchors, block_size=slots, context_len=features.shape[1], view=view)
            near = block_mask(slots, view, features.device)
            context = layer.self_attn.context(features, far_tables)
            x = layer(x, tables, context, (far, near))
            if trace is not None:
                trace.context.append(context)
                trace.layers.append(x)
        out: Tensor = self.norm(x)
        return out

    def _features(self, inputs: BlockInputs) -> Tensor:
        """What context K and V are made of, ``[S, T, hidden]``; not normed by any layer."""
        if inputs.context is None:
            raise ValueError("this drafter needs the states of every token: BlockInputs.context")
        features: Tensor = self.hidden_norm(self.fc(inputs.context.float()).float())
        return features
