# SPDX-License-Identifier: Apache-2.0
"""DFlash checkpoints: the speculators format, the original z-lab one and DeepSpec's."""

from __future__ import annotations

from typing import Final

from hspec_trt.checkpoint.formats import block
from hspec_trt.checkpoint.formats.envelope import check_envelope
from hspec_trt.checkpoint.formats.layout import DrafterLayout, DrafterSource
from hspec_trt.checkpoint.formats.weights import fit
from hspec_trt.config.drafters_block import DFlashConfig

KIND: Final = "dflash"
_HEADS: Final = ("markov_head.", "confidence_head.")


def read_speculators(source: DrafterSource) -> DrafterLayout:
    """A checkpoint with ``speculators_model_type`` "dflash".

    Raises:
        DrafterError, CheckpointError: all faults found, as a `FaultGroup` where there are several.
    """
    check_envelope(source, block.SPECULATORS_KEYS)
    return _assemble(source, block.read_speculators(source))


def read_original(source: DrafterSource) -> DrafterLayout:
    """A z-lab checkpoint (``dflash_config``), whose slots predict their own position, or DeepSpec's, which must say.

    Raises:
        DrafterError, CheckpointError: as `read_speculators`.
    """
    zlab = source.fields.has("dflash_config")
    return _assemble(source, block.read_original(source, from_anchor=False if zlab else None))


def _assemble(source: DrafterSource, fields: block.BackboneFields) -> DrafterLayout:
    heads = [name for name in source.tensors if name.startswith(_HEADS)]
    if heads:
        fix = "Use --drafter-format dspark"
        source.fault("D001", f"read as dflash, but the checkpoint has {heads[0]}", needed="no Markov head", fix=fix)
    source.fields.faults.raise_any()
    config = DFlashConfig(kind=KIND, **fields)
    tensors = fit(source, config, block.block_weights(source, config))
    return DrafterLayout(config, tensors, tuple(source.notes), tuple(source.warnings))
