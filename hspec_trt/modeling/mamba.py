# SPDX-License-Identifier: Apache-2.0
"""The Mamba-2 mixer over one short block: causal conv without history, selective scan from a given state.

Owns the quadratic form of the scan, which suits blocks of up to some 32 tokens, the call of mamba_ssm's kernels in its
place, and the mixer around it. It keeps no state between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hspec_trt.modeling.layers import RMSNorm


def block_scan(
    x: Tensor, dt: Tensor, a_log: Tensor, b: Tensor, c: Tensor, *, d: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """``S_t = exp(dt_t A) S_{t-1} + dt_t x_t (outer) B_t``, ``y_t = S_t C_t + D x_t`` with ``A = -exp(a_log)``.

    In closed form over the block: with ``l_i`` the running sum of ``dt A``,
    ``y_i = sum_{j<=i} (C_i . B_j) exp(l_i - l_j) dt_j x_j + exp(l_i) S_0 C_i + D x_i``.

    Args:
        x: ``[N, T, heads, head_dim]``; head i uses group ``i // (heads / groups)`` of b and c.
        dt: step after softplus ``[N, T, heads]``.
        a_log, d: ``[heads]``; d None is no skip term.
        b, c: ``[N, T, groups, d_state]``.
        state: ``[N, heads, head_dim, d_state]``; None is zero.

    Returns:
        y as x, and the state after the block. All fp32.
    """
    x, dt, b, c = x.float(), dt.float(), b.float(), c.float()
    per_group = x.shape[2] // b.shape[2]
    steps = torch.cumsum(dt * -torch.exp(a_log.float()), dim=1).transpose(1, 2)
    b_heads, c_heads = (part.repeat_interleave(per_group, dim=2).transpose(1, 2) for part in (b, c))
    future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
    # Masked before exp: above the diagonal the difference is positive and may overflow.
    decay = (steps[..., :, None] - steps[..., None, :]).masked_fill(future, -torch.inf).exp()
    mixing = (c_heads @ b_heads.transpose(-1, -2)) * decay * dt.transpose(1, 2)[..., None, :]
    inner = x.transpose(1, 2)
    y = mixing @ inner
    left = (steps[..., -1:] - steps).exp() * dt.transpose(1, 2)
    final = (inner * left[..., None]).transpose(-1, -2) @ b_heads
    if state is not None:
        y = y + steps.exp()[..., None] * (c_heads @ state.float().transpose(-1, -2))
        final = final + steps[..., -1, None, None].exp() * state.float()
    if d is not None:
        y = y + d.float()[:, None, None] * inner
    return y.transpose(1, 2), final


KERNEL_CHUNK = 16
"""Tokens that mamba_ssm's kernels take at once; what is left of a chunk is masked."""


def kernel_scan(
    x: Tensor, dt: Tensor, a_log: Tensor, b: Tensor, c: Tensor, *, d: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`block_scan` by mamba_ssm's kernels, which must be there; everything on one GPU, fp32."""
    scan = _chunk_scan()
    if scan is None:
        raise ValueError("mamba_ssm cannot be imported")
    x, dt, b, c = x.float(), dt.float(), b.float(), c.float()
    found: tuple[Tensor, Tensor] = scan(
        x,
        dt,
        -torch.exp(a_log.float()),
        b,
        c,
        KERNEL_CHUNK,
        D=None if d is None else d.float(),
        initial_states=None if state is None else state.float().contiguous(),
        return_final_states=True,
    )
    return found


def uses_kernels(device: torch.device) -> bool:
    """True where the mixer scans by mamba_ssm's kernels."""
    return device.type == "cuda" and _chunk_scan() is not None


@cache
def _chunk_scan() -> Callable[..., Any] | None:
    try:
        from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined
    except ImportError:
        return None
    scan: Callable[..., Any] = mamba_chunk_scan_combined
    return scan


class Mamba2Mixer(nn.Module):
    """Mixer of one mamba sub-layer; parameter names as published."""

    def __init__(
        self,
        hidden_size: int,
        *,
        num_heads: int,
        head_dim: int,
        d_state: int,
        n_groups: int,
        conv_kernel: int,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.d_state, self.n_groups = num_heads, head_dim, d_state, n_groups
        inner, self.conv_kernel = num_heads * head_dim, conv_kernel
        conv_dim = inner + 2 * n_groups * d_state
        self.in_proj = nn.Linear(hidden_size, inner + conv_dim + num_heads, bias=False)
        self.conv1d = nn.Conv1d(conv_dim, conv_dim, conv_kernel, groups=conv_dim)
        self.A_log = nn.Parameter(torch.arange(1, num_heads + 1).float().log())
        self.D = nn.Parameter(torch.ones(num_heads))
        self.dt_bias = nn.Parameter(torch.zeros(num_heads))
        self.norm = RMSNorm(inner, norm_eps)
        self.out_proj = nn.Linear(inner, hidden_size, bias=False)

    def forward(self, u: Tensor, state: Tensor | None) -> Tensor:
        """Mix the tokens of each block.

        Args:
            u: ``[N, T, hidden]``, normed.
            state: ``[N, heads, head_dim, d_state]`` before the block; None is zero.
        """
        inner, grouped = self.num_heads * self.head_dim, self.n_groups * self.d_state
        projected = self.in_proj(u)
        gate, xbc, dt = torch.split(projected, [inner, inner + 2 * grouped, self.num_heads], dim=-1)
        # The scan, its exponentials and the norm lose too much in half precision.
        with torch.autocast(u.device.type, enabled=False):
            x, b, c = torch.split(self._conv(xbc.float()), [inner, grouped, grouped], dim=-1)
            step = functional.softplus(dt.float() + self.dt_bias.float())
            scan = kernel_scan if uses_kernels(u.device) else block_scan
            y, _ = scan(
                x.reshape(*x.shape[:2], self.num_heads, self.head_dim),
                step,
                self.A_log,
                b.reshape(*b.shape[:2], self.n_groups, self.d_state),
                c.reshape(*c.shape[:2], self.n_groups, self.d_state),
                d=self.D,
                state=state,
            )
            gated = self.norm(y.flatten(2) * functional.silu(gate.float()))
        out: Tensor = self.out_proj(gated.to(projected.dtype))
        return out

    def _conv(self, xbc: Tensor) -> Tensor:
        """Depthwise causal conv as a sum over taps (zeros before the block), then SiLU; fp32."""
        taps = self.conv1d.weight.float()[:, 0]
        padded = functional.pad(xbc, (0, 0, self.conv_kernel - 1, 0))
        shifted = [padded[:, j : j + xbc.shape[1]] * taps[:, j] for j in range(self.conv_kernel)]
        total = sum(shifted[1:], shifted[0])
        if self.conv1d.bias is not None:
            total = total + self.conv1d.bias.float()
        return functional.silu(total)
