# SPDX-License-Identifier: Apache-2.0
"""From opened checkpoints to PyTorch modules.

Owns the move of tensors from checkpoint sources into modules, and the table of modules by drafter. It reads no files
itself and trains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from hspec_trt.checkpoint.drafter import DrafterCheckpoint
from hspec_trt.checkpoint.families import EMBEDDING as TARGET_EMBEDDING
from hspec_trt.checkpoint.families import HEAD as TARGET_HEAD
from hspec_trt.checkpoint.target import TargetCheckpoint
from hspec_trt.checkpoint.tensors import TensorSource
from hspec_trt.config.drafter import DrafterConfig, HSpecConfig
from hspec_trt.errors import DrafterError
from hspec_trt.modeling.block import SharedTables
from hspec_trt.modeling.hspec import HSpecModel
from hspec_trt.modeling.target import TargetModel

D2T: Final = "d2t"
EMBEDDING: Final = "embed_tokens.weight"
HEAD: Final = "lm_head.weight"


def read_tensor(source: TensorSource) -> Tensor:
    """The values in PyTorch, a copy in the stored type."""
    values = source.read()
    if values.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(values.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(values))


def target_model(target: TargetCheckpoint, *, dtype: torch.dtype = torch.float32) -> TargetModel:
    """The target as a teacher."""
    weights = {name: read_tensor(source).float() for name, source in target.tensors.items()}
    return TargetModel(target.config, weights, dtype=dtype)


def shared_tables(
    target_ids: Tensor, target: TargetCheckpoint, own: Mapping[str, TensorSource] | None = None
) -> SharedTables:
    """Embedding and head rows, fp32: the drafter's own where it has them, else the target's.

    Args:
        target_ids: int64 ``[Vd]``, target id of each draft id.
        own: the drafter's tensors by published name.
    """
    own = own or {}
    embedding = read_tensor(own.get(EMBEDDING) or target.tensors[TARGET_EMBEDDING]).float()
    if HEAD in own:
        return SharedTables(embedding, read_tensor(own[HEAD]).float(), target_ids)
    rows = read_tensor(target.tensors.get(TARGET_HEAD) or target.tensors[TARGET_EMBEDDING])
    return SharedTables(embedding, rows[target_ids].float(), target_ids)


def draft_target_ids(config: DrafterConfig, own: Mapping[str, TensorSource]) -> Tensor:
    """Target id of each draft id, int64 ``[Vd]``."""
    ids = torch.arange(config.draft_vocab_size)
    return ids + read_tensor(own[D2T]) if D2T in own else ids


def drafter_model(drafter: DrafterCheckpoint, target: TargetCheckpoint) -> HSpecModel:
    """The module of a drafter, filled from its checkpoint, fp32, in evaluation mode.

    Raises:
        DrafterError: D210 for a drafter without a module.
    """
    config = drafter.config
    if not isinstance(config, HSpecConfig):
        raise DrafterError("D210", f"{config.kind} has no PyTorch module here", needed="hspec")
    tables = shared_tables(draft_target_ids(config, drafter.tensors), target, drafter.tensors)
    model = HSpecModel(config, tables)
    model.load_state_dict({name: read_tensor(drafter.tensors[name]).float() for name in model.state_dict()})
    return model.eval()
