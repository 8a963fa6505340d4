# SPDX-License-Identifier: Apache-2.0
"""EAGLE-3 in PyTorch: the reference for tests, and the layers that P-EAGLE shares.

Owns the forward pass over entries (token, fused state) under any mask, with earlier keys and values given, which
serves drafting, training-time test and P-EAGLE's depths alike. Parameter names are those of the speculators format.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hspec_trt.config.drafters_eagle import Eagle3Config
from hspec_trt.modeling.layers import RMSNorm, SwiGLU, rope_tables, rotate

KeyValue = tuple[Tensor, Tensor]
"""Keys (rotated) and values ``[kv_heads, entries, head_dim]`` of one layer."""


class EagleAttention(nn.Module):
    """Grouped-query attention over entries; layer 0 reads twice the width."""

    def __init__(self, config: Eagle3Config, width_in: int) -> None:
        super().__init__()
        width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q_proj = nn.Linear(width_in, width, bias=config.attention_bias)
        self.k_proj = nn.Linear(width_in, kv_width, bias=config.attention_bias)
        self.v_proj = nn.Linear(width_in, kv_width, bias=config.attention_bias)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=config.attention_bias)
        self.head_dim, self.qk_norm = config.head_dim, config.qk_norm
        if config.qk_norm:
            self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor, past: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """``[E, width_in]`` to ``[E, hidden]``; `mask` is bool ``[E, past + E]`` (query, key)."""
        query, key, value = (
            part(x).unflatten(-1, (-1, self.head_dim)) for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.qk_norm:
            query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (t.transpose(0, 1) for t in (rotate(query, rotation), rotate(key, rotation), value))
        if past is not None:
            key, value = torch.cat([past[0], key], dim=1), torch.cat([past[1], value], dim=1)
        mixed = functional.scaled_dot_product_attention(
            query[None], key[None], value[None], attn_mask=mask, scale=self.head_dim**-0.5, enable_gqa=True
        )[0]
        return self.o_proj(mixed.transpose(0, 1).flatten(1)), (key, value)


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

    def forward(
        self, embedded: Tensor, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor, past: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """Hidden stream ``[E, hidden]`` to the next; `embedded` (token embeddings) is read by the first layer only."""
        residual = x
        if self.first:
            normed = self.hidden_norm(x)
            residual = normed if self.norm_before_residual else x
            x = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
        else:
            x = self.input_layernorm(x)
        mixed, cache = self.self_attn(x, rotation, mask, past)
        x = residual + mixed
        return x + self.mlp(self.post_attention_layernorm(x)), cache


class Eagle3(nn.Module):
    """An EAGLE-3 drafter. Draft ids are in the draft vocabulary; `d2t` maps them to the target's."""

    d2t: Tensor

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.config = config
        hidden, fused, eps = config.hidden_size, len(config.fused_layers), config.rms_norm_eps
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        if config.norm_before_fc:
            self.input_norm = RMSNorm(fused * hidden, eps)
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(RMSNorm(hidden, eps) for _ in range(fused))
        self.fc = nn.Linear(fused * hidden, hidden, bias=False)
        self.layers = nn.ModuleList(EagleLayer(config, first=index == 0) for index in range(len(config.windows)))
        self.norm = RMSNorm(hidden, eps)
        self.lm_head = nn.Linear(hidden, config.draft_vocab_size, bias=False)
        if config.reduced_vocab:
            self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))

    def fuse(self, states: Tensor) -> Tensor:
        """``g`` of concatenated target states: ``[E, F * hidden]`` to ``[E, hidden]``."""
        if self.config.norm_before_fc:
            states = self.input_norm(states)
        if self.config.fc_norm:
            parts = states.chunk(len(self.fc_norm), dim=-1)
            states = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        out: Tensor = self.fc(states)
        return out

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
        config = self.config
        embedded = self.embed_tokens(token_ids)
        rotation = rope_tables(config.rope, config.head_dim, positions)
        caches, x = [], states
        for index, layer in enumerate(self.layers):
            x, cache = layer(embedded, x, rotation, masks[index], past[index] if past else None)
            caches.append(cache)
        return x, caches

    def logits(self, x: Tensor) -> Tensor:
        """Draft logits ``[..., Vd]`` of `run`'s result."""
        out: Tensor = self.lm_head(self.norm(x))
        return out

    def feedback(self, x: Tensor) -> Tensor:
        """The state that the next serial pass reads in place of ``g``."""
        out: Tensor = self.norm(x) if self.config.norm_output else x
        return out

    def causal_masks(self, queries: Tensor, keys: Tensor) -> list[Tensor]:
        """Per layer, bool ``[E, K]``: keys at positions ``(t - W, t]`` (no lower edge on full layers)."""
        distance = queries[:, None] - keys[None, :]
        return [(distance >= 0) & (distance < (window or len(keys) + 1)) for window in self.config.windows]

    def to_target(self, draft_ids: Tensor) -> Tensor:
        """Target ids of draft ids (``d2t`` holds offsets)."""
        return draft_ids + self.d2t[draft_ids] if self.config.reduced_vocab else draft_ids

    def draft(self, entry_ids: Tensor, states: Tensor, num_drafts: int) -> tuple[Tensor, Tensor]:
        """Greedy chain after a whole text: draft ids ``[G]`` and the logits ``[G, Vd]`` they are the best of.

        Args:
            entry_ids: int64 ``[p]``, tokens ``x_1 .. x_p``.
            states: concatenated target states ``[p, F * hidden]`` of tokens ``0 .. p-1``.
        """
        positions = torch.arange(len(entry_ids))
        x, past = self.run(entry_ids, self.fuse(states), positions, self.causal_masks(positions, positions))
        ids, scores, last = [], [self.logits(x[-1:])], x[-1:]
        for step in range(num_drafts):
            ids.append(scores[-1].argmax(-1))
            if step + 1 == num_drafts:
                break
            position = torch.tensor([len(entry_ids) + step])
            seen = torch.arange(len(entry_ids) + step + 1)
            masks = self.causal_masks(position, seen)
            last, past = self.run(self.to_target(ids[-1]), self.feedback(last), position, masks, past)
            scores.append(self.logits(last))
        return torch.cat(ids), torch.cat(scores)
