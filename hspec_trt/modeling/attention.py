# SPDX-License-Identifier: Apache-2.0
"""Attention of every drafter: projections, softmax, and the rules of who sees whom.

Owns the projections (queries, keys and values, normed and rotated), the softmax of block slots over a context that
somebody else made plus their own block, and the visibility rules (window, causality, context or none).

A batch holds S sequences with A anchors each; block slot k of an anchor at position p sits at position p + k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hspec_trt.modeling.layers import RMSNorm, RopeTables, rotate

WindowEdge = Literal["slot", "anchor"]
"""Which context a window leaves: "slot" t > p + k - W, as served; "anchor" t >= p - W for all slots, as trained."""

KeyValue = tuple[Tensor, Tensor]
"""Keys, normed and rotated, and values."""


@dataclass(frozen=True)
class BlockView:
    """What a block may see.

    Attributes:
        window: tokens; 0 is no window.
        causal: slot k sees block slots up to k only.
        context: False hides the context altogether.
    """

    window: int
    causal: bool
    context: bool = True
    edge: WindowEdge = "slot"


def block_positions(anchors: Tensor, block_size: int) -> Tensor:
    """Positions ``[S, A, B]`` of the slots of anchors at positions ``[S, A]``."""
    return anchors[..., None] + torch.arange(block_size, device=anchors.device)


def context_mask(anchors: Tensor, *, block_size: int, context_len: int, view: BlockView) -> Tensor:
    """Which context tokens each slot sees, bool ``[S, A, B, T]``.

    Args:
        anchors: positions ``[S, A]``; context tokens at or beyond an anchor are never visible to it.
        context_len: T; shorter sequences are padded at the end.
    """
    position = torch.arange(context_len, device=anchors.device)
    anchor = anchors[:, :, None, None]
    if not view.context:
        return torch.zeros(*anchors.shape, block_size, context_len, dtype=torch.bool, device=anchors.device)
    seen = (position < anchor).expand(-1, -1, block_size, -1)
    if view.window:
        slots = torch.arange(block_size, device=anchors.device)[:, None]
        edge = anchor + slots - view.window + 1 if view.edge == "slot" else anchor - view.window
        seen = seen & (position >= edge)
    return seen


def block_mask(block_size: int, view: BlockView, device: torch.device | None = None) -> Tensor:
    """Which slots of its own block each slot sees, bool ``[B, B]``; a served window cuts the block too."""
    slots = torch.arange(block_size, device=device)
    ahead = slots[:, None] - slots[None, :]
    seen = ahead >= 0 if view.causal else torch.ones_like(ahead, dtype=torch.bool)
    return seen & (ahead.abs() < view.window) if view.window and view.edge == "slot" else seen


class DraftAttention(nn.Module):
    """Grouped-query attention of a draft layer; names as published.

    Args:
        width_in: channels that q, k and v read; None is `hidden_size`.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        eps: float,
        qk_norm: bool,
        bias: bool = False,
        width_in: int | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        width_in = width_in or hidden_size
        self.q_proj = nn.Linear(width_in, num_heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(width_in, num_kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(width_in, num_kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(num_heads * head_dim, hidden_size, bias=bias)
        self.q_norm = RMSNorm(head_dim, eps) if qk_norm else None
        self.k_norm = RMSNorm(head_dim, eps) if qk_norm else None

    def project(self, x: Tensor, tables: RopeTables) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys (both normed and rotated) and values ``[..., tokens, heads, head_dim]``.

        Args:
            x: ``[..., tokens, width_in]``, normed.
            tables: cos and sin ``[..., tokens, rotary_dim]``.
        """
        return self.query(x, tables), *self.context(x, tables)

    def query(self, x: Tensor, tables: RopeTables) -> Tensor:
        """Queries (normed, rotated) only, as `project` has them."""
        query = self._heads(self.q_proj(x))
        if self.q_norm is not None:
            query = self.q_norm(query)
        return rotate(query, tables)

    def context(self, x: Tensor, tables: RopeTables) -> KeyValue:
        """Keys (normed, rotated) and values only, as `project` has them."""
        key, value = self._heads(self.k_proj(x)), self._heads(self.v_proj(x))
        if self.k_norm is not None:
            key = self.k_norm(key)
        return rotate(key, tables), value

    def forward(self, x: Tensor, tables: RopeTables, context: KeyValue, masks: tuple[Tensor, Tensor]) -> Tensor:
        """Attend from block slots.

        Args:
            x: ``[S, A, B, width_in]``, normed.
            tables: cos and sin ``[S, A, B, rotary_dim]``.
            context: keys and values ``[S, T, kv_heads, head_dim]``; keys are normed and rotated already.
            masks: `context_mask` ``[S, A, B, T]`` and `block_mask` ``[B, B]``.

        Returns:
            ``[S, A, B, hidden]``.
        """
        out: Tensor = self.o_proj(attend(*self.project(x, tables), context, masks).flatten(3))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self.head_dim)


def attend(query: Tensor, key: Tensor, value: Tensor, context: KeyValue, masks: tuple[Tensor, Tensor]) -> Tensor:
    """One softmax over context and own block; query head j uses K/V head ``j // (heads / kv_heads)``.

    Args:
        query: ``[S, A, B, heads, head_dim]``; key, value: ``[S, A, B, kv_heads, head_dim]``.
        context, masks: as for `DraftAttention.forward`.

    Returns:
        As query.
    """
    sequences, anchors, slots, heads, head_dim = query.shape
    kv_heads = key.shape[3]
    grouped = query.view(sequences, anchors, slots, kv_heads, -1, head_dim).permute(0, 3, 1, 4, 2, 5) * head_dim**-0.5
    far_key, far_value = (part.to(key.dtype).transpose(1, 2) for part in context)
    near_key, near_value = (part.permute(0, 3, 1, 2, 4) for part in (key, value))
    # [S, kv_heads, A, group, B, T] and [..., B]
    far = (grouped.flatten(2, 4) @ far_key.transpose(-1, -2)).view(*grouped.shape[:-1], -1)
    near = (grouped.flatten(3, 4) @ near_key.transpose(-1, -2)).view(*grouped.shape[:-1], -1)
    seen = masks[0][:, None, :, None], masks[1]
    scores = torch.cat(
        [part.float().masked_fill(~mask, -torch.inf) for part, mask in zip((far, near), seen, strict=True)], -1
    )
    chances = torch.split(torch.softmax(scores, -1).to(value.dtype), [far.shape[-1], slots], dim=-1)
    mixed = (chances[0].flatten(2, 4) @ far_value).view_as(grouped)
    mixed = mixed + (chances[1].flatten(3, 4) @ near_value).view_as(grouped)
    out: Tensor = mixed.permute(0, 2, 4, 1, 3, 5).reshape(sequences, anchors, slots, heads, head_dim)
    return out
