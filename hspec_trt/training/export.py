# SPDX-License-Identifier: Apache-2.0
"""Writes a trained drafter in the published layout, without what the target has already.

P-EAGLE alone brings its embedding table: its format asks for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save
from torch import Tensor

from hspec_trt.bundle import write_atomic
from hspec_trt.config.target import TargetConfig
from hspec_trt.modeling.block import BlockDrafter
from hspec_trt.training.types import DrafterType

KEPT_FLOAT32: Final = ("A_log", "D", "dt_bias")


def export(folder: Path, drafter_type: DrafterType, model: BlockDrafter, target: TargetConfig) -> int:
    """Write config.json and model.safetensors, bfloat16 but for the scan's scalars.

    Returns:
        Bytes of model.safetensors.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = model.drafter_config
    tensors = {
        name: value.detach().cpu().to(torch.float32 if name.endswith(KEPT_FLOAT32) else torch.bfloat16).contiguous()
        for name, value in model.state_dict().items()
    }
    if config.reduced_vocab:
        tensors |= vocab_tables(model.target_ids.cpu(), config.vocab_size)
    content = save(tensors, metadata={"format": "pt"})
    write_atomic(folder / "model.safetensors", content)
    text = json.dumps(drafter_type.config_json(config, target), indent=2, sort_keys=True) + "\n"
    write_atomic(folder / "config.json", text.encode())
    return len(content)


def vocab_tables(target_ids: Tensor, vocab_size: int) -> dict[str, Tensor]:
    """``d2t`` (offsets, int64 ``[Vd]``) and ``t2d`` (bool ``[V]``) of rising target ids."""
    marks = torch.zeros(vocab_size, dtype=torch.bool)
    marks[target_ids] = True
    return {"d2t": target_ids - torch.arange(len(target_ids)), "t2d": marks}
