# SPDX-License-Identifier: Apache-2.0
"""The loss of draft slots against the target's distribution, over the draft vocabulary.

Owns cross entropy to the target's first choice, total variation, slot weights and the fused evaluation that never holds
all logits at once. It knows no drafter; the head is frozen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hspec_trt.training.options import LossMix

ROWS_AT_ONCE = 256
"""Rows whose logits are alive together."""
MASK_EPS = 1e-5
SLOT_DECAY = 4.0
"""Slots over which a slot's weight falls by e."""


@dataclass(frozen=True)
class HeadLoss:
    """Result for M slots.

    Attributes:
        loss: weighted sum over the slots, not yet divided.
        overlap: ``sum min(q, pi)`` ``[M]``, the chance that a draft drawn from q is accepted.
        hit: bool ``[M]``, the drafter's first choice is the target's.
    """

    loss: Tensor
    overlap: Tensor
    hit: Tensor


def slot_weights(num_slots: int, device: torch.device | None = None) -> Tensor:
    """``exp(-(k - 1) / decay)`` of slots 1 to `num_slots`."""
    return torch.exp(-torch.arange(num_slots, device=device) / SLOT_DECAY)


def head_loss(
    hidden: Tensor, final: Tensor, head: Tensor, weight: Tensor, *, markov: tuple[Tensor, Tensor] | None, mix: LossMix
) -> HeadLoss:
    """Loss of M slots; gradients reach `hidden` and `markov`, never the head.

    Args:
        hidden: the drafter's head input ``[M, hidden]``.
        final: the target's head input of the judging rows ``[M, hidden]``.
        head: ``[Vd, hidden]``; its type is the type of the products.
        weight: ``[M]``.
        markov: ``W1`` rows of the previous tokens ``[M, rank]`` and ``W2`` ``[Vd, rank]``.
    """
    rows, table = markov if markov is not None else (hidden.new_zeros(len(hidden), 0), hidden.new_zeros(len(head), 0))
    loss, overlap, hit = _HeadLoss.apply(  # type: ignore[no-untyped-call]
        hidden, rows, table, final, head, weight, mix
    )
    return HeadLoss(loss, overlap, hit)


class _HeadLoss(torch.autograd.Function):
    """Computes gradients together with the loss, a few rows at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        rows: Tensor,
        table: Tensor,
        final: Tensor,
        head: Tensor,
        weight: Tensor,
        mix: LossMix,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = head.dtype
        small, narrow = hidden.to(dtype), rows.to(dtype)
        grads = torch.empty_like(small), torch.empty_like(narrow), torch.zeros_like(table, dtype=torch.float32)
        loss, overlaps, hits = hidden.new_zeros(()), [], []
        cast_table, judge = table.to(dtype), final.to(dtype)
        for start in range(0, len(hidden), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            logits = functional.linear(small[part], head)
            if rows.shape[1]:
                logits = logits + functional.linear(narrow[part], cast_table)
            share, grad, overlap, hit = slot_terms(logits.float(), functional.linear(judge[part], head).float(), mix)
            loss = loss + (share * weight[part]).sum()
            grad = (grad * weight[part, None]).to(dtype)
            grads[0][part] = grad @ head
            if rows.shape[1]:
                grads[1][part] = grad @ cast_table
                grads[2].add_(grad.T @ narrow[part])
            overlaps.append(overlap)
            hits.append(hit)
        ctx.save_for_backward(*grads)
        overlap, hit = torch.cat(overlaps), torch.cat(hits)
        ctx.mark_non_differentiable(overlap, hit)
        return loss, overlap, hit

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        hidden, rows, table = ctx.saved_tensors
        scaled = (part.float() * grad_loss for part in (hidden, rows, table))
        return (*scaled, None, None, None, None)


def slot_terms(logits: Tensor, target_logits: Tensor, mix: LossMix) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss and its gradient by the logits, of rows ``[M, Vd]`` in fp32.

    With q = softmax(z), pi = softmax(y), t = argmax y: ``ce = -log q_t``, ``d ce / dz = q - e_t``;
    ``tv = 1 - sum min(q, pi)``, ``d tv / dz = q (s - sum q s)`` where s = -1 at q < pi, else 0.

    Returns:
        loss ``[M]``, gradient ``[M, Vd]``, overlap ``[M]``, hit ``[M]``.
    """
    label = target_logits.argmax(-1, keepdim=True)
    hit = logits.argmax(-1, keepdim=True) == label
    log_q, pi = torch.log_softmax(logits, -1), torch.softmax(target_logits, -1)
    ce = -log_q.gather(-1, label).squeeze(-1)
    q = log_q.exp_()
    short = (q < pi).float()
    overlap = torch.minimum(q, pi, out=pi).sum(-1)
    below = torch.linalg.vecdot(q, short)
    # q (s - sum q s) = q (below - short), with s = -1 where q is short.
    grad = short.mul_(-mix.tv).add_((mix.ce + mix.tv * below)[:, None]).mul_(q)
    grad.scatter_add_(-1, label, torch.full_like(label, -mix.ce, dtype=grad.dtype))
    return mix.ce * ce + mix.tv * (1 - overlap), grad, overlap, hit.squeeze(-1)
