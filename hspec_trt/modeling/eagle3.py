# SPDX-License-Identifier: Apache-2.0
"""EAGLE-3 in PyTorch: the reference for tests, and the layers that P-EAGLE shares.

Owns the forward pass over entries (token, fused state) under any mask, with earlier keys and values given. Parameter
names are those of the speculators format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from hspec_trt.config.drafters_eagle import Eagle3Config
from hspec_trt.modeling.attention import DraftAttention, KeyValue
from hspec_trt.modeling.block import SharedTables, TableDrafter
from hspec_trt.modeling.layers import RMSNorm, RopeTables, SwiGLU, rope_tables


class EagleAttention(DraftAttention):
    """Attention over entries under any mask; layer 0 reads twice the width."""

    def __init__(self, config: Eagle3Config, width_in: int) -> None:
        super().__init__(
            config.hidden_size,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            eps=config.rms_norm_eps,
            qk_norm=config.qk_norm,
            bias=config.attention_bias,
            width_in=width_in,
        )

    def over_entries(
        self, x: Tensor, rotation: RopeTables, mask: Tensor, past: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """Attend from entries to entries, and to earlier ones.

        Args:
            x: ``[..., E, width_in]``, normed.
            rotation: cos and sin ``[E, rotary_dim]``.
            mask: bool ``[E, past + E]`` (query, key).
            past: keys and values ``[..., past, kv_heads, head_dim]``.

        Returns:
            ``[..., E, hidden]``, and all keys and values so far.
        """
        query, key, value = self.project(x, rotation)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=-3), torch.cat([past[1], value], dim=-3)
        out: Tensor = self.o_proj(self.mix(query, (key, value), mask))
        return out, (key, value)

    def mix(self, query: Tensor, context: KeyValue, mask: Tensor) -> Tensor:
        """What the output projection reads, ``[..., E, heads * head_dim]``.

        Args:
            query: ``[..., E, heads, head_dim]``.
            context: keys and values ``[..., K, kv_heads, head_dim]``.
            mask: bool ``[E, K]``.
        """
        query, key, value = (part.transpose(-3, -2) for part in (query, *context))
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=self.head_dim**-0.5, enable_gqa=True
        )
        return mixed.transpose(-3, -2).flatten(-2)


class EagleLayer(nn.Module):
    """One draft layer. The first one reads the normed embedding beside the normed fused state."""

    def __init__(self, config: Eagle3Config, *, first: bool) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RMSNorm(hidden, eps)
        if first:
            self.hidden_norm = RMSNorm(hidden, eps)
        self.self_attn = EagleAttention(config, 2 * hidden if first else hidden)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.mlp = SwiGLU(hidden, config.intermediate_size, bias=config.mlp_bias)
        self.first, self.norm_before_residual = first, config.norm_before_residual

    def read(self, embedded: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Residual and attention's input of streams ``[..., hidden]``; only the first layer reads `embedded`."""
        if not self.first:
            return x, self.input_layernorm(x)
        normed = self.hidden_norm(x)
        both = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
        return normed if self.norm_before_residual else x, both

    def write(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """The next stream of a residual and attention's result ``[..., hidden]``."""
        x = residual + mixed.float()
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x)).float()
        return out


class EagleBody(TableDrafter):
    """What EAGLE-3 and P-EAGLE share: the fused states and the layers over entries."""

    config: Eagle3Config

    def __init__(self, config: Eagle3Config, tables: SharedTables) -> None:
        super().__init__(tables)
        self.config = config
        hidden, fused, eps = config.hidden_size, len(config.fused_layers), config.rms_norm_eps
        if config.norm_before_fc:
            self.input_norm = RMSNorm(fused * hidden, eps)
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(RMSNorm(hidden, eps) for _ in range(fused))
        self.fc = nn.Linear(fused * hidden, hidden, bias=False)
        self.layers = nn.ModuleList(EagleLayer(config, first=index == 0) for index in range(len(config.windows)))
        self.norm = RMSNorm(hidden, eps)

    def fuse(self, states: Tensor) -> Tensor:
        """``g`` of concatenated target states: ``[..., F * hidden]`` to ``[..., hidden]``."""
        if self.config.norm_before_fc:
            states = self.input_norm(states)
        if self.config.fc_norm:
            parts = states.chunk(len(self.fc_norm), dim=-1)
            states = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        out: Tensor = self.fc(states)
        return out.float()

    def run(
        self,
        token_ids: Tensor,
        states: Tensor,
        positions: Tensor,
        masks: list[Tensor],
        past: list[KeyValue] | None = None,
    ) -> tuple[Tensor, list[KeyValue]]:
        """Hidden stream ``[E, hidden]`` of entries before the final norm, and all keys and values so far.

        Args:
            token_ids, positions: int64 ``[E]``.
            states: ``g`` (or fed-back hidden states) ``[E, hidden]``.
            masks: per layer, bool ``[E, past + E]``.
            past: result of the call before.
        """
        embedded = self.embed(token_ids)
        rotation = rope_tables(self.config.rope, self.config.head_dim, positions)
        caches, x = [], states
        for index, layer in enumerate(cast("Sequence[EagleLayer]", self.layers)):
            residual, normed = layer.read(embedded, x)
            mixed, cache = layer.self_attn.over_entries(normed, rotation, masks[index], past[index] if past else None)
            x = layer.write(residual, mixed)
            caches.append(cache)
        return x, caches

    def causal_masks(self, queries: Tensor, keys: Tensor) -> list[Tensor]:
        """Per layer, bool ``[E, K]``: keys at positions ``(t - W, t]`` (no lower edge on full layers)."""
        distance = queries[:, None] - keys[None, :]
        return [(distance >= 0) & (distance < (window or len(keys) + 1)) for window in self.config.windows]


class Eagle3(EagleBody):
    """An EAGLE-3 drafter."""

    def head_logits(self, x: Tensor) -> Tensor:
        """Draft logits ``[..., Vd]`` of `run`'s result."""
        return self.logits(self.norm(x))

    def feedback(self, x: Tensor) -> Tensor:
        """The state that the next serial pass reads in place of ``g``."""
        out: Tensor = self.norm(x) if self.config.norm_output else x
        return out

    @torch.no_grad()
    def draft(self, entry_ids: Tensor, states: Tensor, num_drafts: int) -> tuple[Tensor, Tensor]:
        """Greedy chain after a whole text: draft ids ``[G]`` and the logits ``[G, Vd]`` they are the best of.

        Args:
            entry_ids: int64 ``[p]``, tokens ``x_1 .. x_p``.
            states: concatenated target states ``[p, F * hidden]`` of tokens ``0 .. p-1``.
        """
        positions = torch.arange(len(entry_ids))
        x, past = self.run(entry_ids, self.fuse(states), positions, self.causal_masks(positions, positions))
        ids, scores, last = [], [self.head_logits(x[-1:])], x[-1:]
        for step in range(num_drafts):
            ids.append(scores[-1].argmax(-1))
            if step + 1 == num_drafts:
                break
            position = torch.tensor([len(entry_ids) + step])
            seen = torch.arange(len(entry_ids) + step + 1)
            masks = self.causal_masks(position, seen)
            last, past = self.run(self.target_ids[ids[-1]], self.feedback(last), position, masks, past)
            scores.append(self.head_logits(last))
        return torch.cat(ids), torch.cat(scores)
