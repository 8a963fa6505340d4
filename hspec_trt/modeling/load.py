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
from hspec_trt.config.drafters_block import DFlashConfig, DSparkConfig
from hspec_trt.config.drafters_eagle import Eagle3Config, PEagleConfig
from hspec_trt.errors import DrafterError
from hspec_trt.modeling.block import BlockDrafter, SharedTables, TableDrafter
from hspec_trt.modeling.dflash import DFlashModel
from hspec_trt.modeling.dspark import DSparkModel
from hspec_trt.modeling.eagle3 import Eagle3
from hspec_trt.modeling.hspec import HSpecModel
from hspec_trt.modeling.peagle import PEagle
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


def target_model(
    target: TargetCheckpoint, *, dtype: torch.dtype = torch.float32, device: torch.device | None = None
) -> TargetModel:
    """The target as a teacher; no device is the CPU."""
    weights = {name: read_tensor(source).float().to(device) for name, source in target.tensors.items()}
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


def drafter_model(drafter: DrafterCheckpoint, target: TargetCheckpoint) -> BlockDrafter:
    """The module of a block drafter, filled from its checkpoint, fp32, in evaluation mode.

    Raises:
        DrafterError: D210 for a drafter without such a module.
    """
    model = block_module(drafter.config, _tables_of(drafter, target))
    _fill(model, drafter)
    return model


def block_module(config: DrafterConfig, tables: SharedTables) -> BlockDrafter:
    """An unfilled module for a configuration.

    Raises:
        DrafterError: D210 for a drafter that is no block drafter.
    """
    match config:
        case HSpecConfig():
            return HSpecModel(config, tables)
        case DSparkConfig():
            return DSparkModel(config, tables)
        case DFlashConfig():
            return DFlashModel(config, tables)
        case PEagleConfig():
            return PEagle(config, tables)
    needed = "hspec, dflash, dspark, peagle"
    raise DrafterError("D210", f"{config.kind} is no block drafter with a PyTorch module", needed=needed)


def eagle_model(drafter: DrafterCheckpoint, target: TargetCheckpoint) -> Eagle3:
    """The module of an EAGLE-3 drafter, filled from its checkpoint, fp32, in evaluation mode.

    Raises:
        DrafterError: D210 for another drafter.
    """
    config = drafter.config
    if not isinstance(config, Eagle3Config) or isinstance(config, PEagleConfig):
        raise DrafterError("D210", f"{config.kind} is no EAGLE-3 drafter", needed="eagle3")
    model = Eagle3(config, _tables_of(drafter, target))
    _fill(model, drafter)
    return model


def _tables_of(drafter: DrafterCheckpoint, target: TargetCheckpoint) -> SharedTables:
    return shared_tables(draft_target_ids(drafter.config, drafter.tensors), target, drafter.tensors)


def _fill(model: TableDrafter, drafter: DrafterCheckpoint) -> None:
    model.load_state_dict({name: read_tensor(drafter.tensors[name]).float() for name in model.state_dict()})
    model.eval()
