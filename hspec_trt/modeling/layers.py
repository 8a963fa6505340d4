# SPDX-License-Identifier: Apache-2.0
"""Blocks that the target and every drafter share: RMSNorm, rotary embedding, SwiGLU.

Owns their arithmetic in PyTorch (fp32 where precision matters); knows no model, no checkpoint and no mask.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hspec_trt.config.rope import RopeConfig

RopeTables = tuple[Tensor, Tensor]
"""Cosines and sines ``[..., tokens, rotary_dim]``."""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``weight * (x * rsqrt(mean(x^2) + eps))`` over the last dim; the statistics are fp32, the result has x's dtype.

    Args:
        x: ``[..., C]``.
        weight: ``[C]``.
    """
    return functional.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps).to(x.dtype)


class RMSNorm(nn.Module):
    """`rms_norm` with its weight ``[channels]``."""

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """``[..., channels]`` to the same."""
        return rms_norm(x, self.weight, self.eps)


class SwiGLU(nn.Module):
    """``down(silu(gate(x)) * up(x))``."""

    def __init__(self, hidden_size: int, intermediate_size: int, *, bias: bool = False) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., hidden_size]`` to the same."""
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def rope_tables(rope: RopeConfig, head_dim: int, positions: Tensor) -> RopeTables:
    """Cosines and sines of given positions, fp32.

    Args:
        positions: int ``[...]``, tokens from the start of the sequence.

    Returns:
        cos and sin ``[..., rotary_dim]``, both halves filled (half-split rotation).
    """
    inverse = torch.from_numpy(rope.inverse_frequencies(head_dim)).to(positions.device)
    angles = positions[..., None].float() * inverse
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos() * rope.attention_scaling, angles.sin() * rope.attention_scaling


def rotate(x: Tensor, tables: RopeTables) -> Tensor:
    """Rotate the first ``rotary_dim`` channels of each head; the others pass.

    Args:
        x: ``[..., tokens, heads, head_dim]``.
        tables: cos and sin ``[..., tokens, rotary_dim]`` from `rope_tables`.
    """
    cos, sin = (table[..., None, :] for table in tables)
    rotary, rest = x[..., : cos.shape[-1]].float(), x[..., cos.shape[-1] :]
    low, high = rotary.chunk(2, dim=-1)
    turned = rotary * cos + torch.cat([-high, low], dim=-1) * sin
    return torch.cat([turned.to(x.dtype), rest], dim=-1)
