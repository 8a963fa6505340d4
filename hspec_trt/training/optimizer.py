# SPDX-License-Identifier: Apache-2.0
"""Optimizers and the rate over the steps: muon for matrices with AdamW for the rest, or AdamW alone."""

from __future__ import annotations

import math

import torch
from torch import nn

from hspec_trt.training.options import TrainOptions

NO_DECAY = ("A_log", "D", "dt_bias")
"""Parameters of the scan that decay would pull to a meaningless value."""
_LOOKUP = ("markov_w1.weight", "markov_w2.weight", "confidence_head.proj.weight", "conv1d.weight")
"""Tables and thin weights: their rows are not directions of one space, which muon takes for granted."""


def make_optimizers(model: nn.Module, options: TrainOptions) -> list[torch.optim.Optimizer]:
    """One or two optimizers over all trained parameters; each group keeps its peak rate as ``peak_lr``."""
    matrices, plain, bare = [], [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if name.endswith(NO_DECAY) or parameter.dim() == 1:
            bare.append(parameter)
        elif parameter.dim() == 2 and not name.endswith(_LOOKUP) and options.optimizer == "muon":
            matrices.append(parameter)
        else:
            plain.append(parameter)
    groups = [{"params": plain, "weight_decay": options.weight_decay}, {"params": bare, "weight_decay": 0.0}]
    found: list[torch.optim.Optimizer] = [torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.95))]
    if matrices:
        found.append(
            torch.optim.Muon(
                matrices,
                lr=options.lr * options.muon_factor,
                weight_decay=options.muon_weight_decay,
                momentum=0.95,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    for optimizer in found:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return found


def rate_at(step: int, steps: int, options: TrainOptions) -> float:
    """Share of the peak rate at a step; see `TrainOptions.schedule`."""
    rise = max(1, options.warmup_steps)
    if step < rise:
        return (step + 1) / rise
    if options.schedule == "late":
        start = decay_start(steps, options)
        fall = max(0.0, (step - start) / max(1, steps - start))
    else:
        fall = 0.5 - 0.5 * math.cos(math.pi * min(1.0, (step - rise) / max(1, steps - rise)))
    return 1 - (1 - options.final_lr) * fall


def decay_start(steps: int, options: TrainOptions) -> int:
    """First step at which the rate depends on the number of steps."""
    return round(steps * (1 - options.decay)) if options.schedule == "late" else 0


def set_rate(optimizers: list[torch.optim.Optimizer], share: float) -> None:
    """Give every group its share of the peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * share
