# SPDX-License-Identifier: Apache-2.0
"""P-EAGLE checkpoints: the speculators format, and the original one (EAGLE-3's with ``ptd_token_id``)."""

from __future__ import annotations

from typing import Final

from hspec_trt.checkpoint.formats.eagle3 import (
    KEYS,
    EagleFields,
    check_foreign,
    eagle_weights,
    read_fields,
    read_original_fields,
)
from hspec_trt.checkpoint.formats.envelope import check_envelope, read_num_drafts, speculative_tokens
from hspec_trt.checkpoint.formats.layout import DrafterLayout, DrafterSource
from hspec_trt.checkpoint.formats.vocab import read_mask_token
from hspec_trt.checkpoint.formats.weights import fit, rename
from hspec_trt.config.drafters_eagle import PEagleConfig
from hspec_trt.contract import MAX_VOCAB_SIZE

KIND: Final = "peagle"
_MASK_TOKEN_NAMES: Final = ("mask_token_id", "ptd_token_id", "pard_token")
_MAX_ID: Final = 1 << 20


def read_speculators(source: DrafterSource) -> DrafterLayout:
    """A checkpoint with ``speculators_model_type`` "peagle".

    Raises:
        DrafterError, CheckpointError: all faults found, as a `FaultGroup` where there are several.
    """
    check_envelope(source, KEYS | {"mask_token_id"})
    return _assemble(source, read_fields(source))


def read_original(source: DrafterSource) -> DrafterLayout:
    """The authors' layout; raises as `read_speculators`."""
    return _assemble(source, read_original_fields(source, frozenset(_MASK_TOKEN_NAMES)))


def _assemble(source: DrafterSource, fields: EagleFields) -> DrafterLayout:
    check_foreign(source, KIND)
    width = len(fields["fused_layers"]) * fields["hidden_size"]
    rename(source, {}, shapes={"mask_hidden": (1, 1, width)})
    if not fields["own_embedding"]:
        found = "the checkpoint has no embed_tokens.weight"
        source.fault("D116", found, needed="the drafter's own table: P-EAGLE trains it")
    trained = speculative_tokens(source)
    drafts = read_num_drafts(source, trained, trained)
    mask = read_mask_token(source, _stated_mask(source), fields["vocab_size"])
    source.notes.append(f"block: {drafts} drafts in one pass, {drafts - 1} of them from mask entries")
    source.fields.faults.raise_any()
    config = PEagleConfig(kind=KIND, **fields, block_size=drafts, num_drafts=drafts, mask_token_id=mask)
    wanted = eagle_weights(source, config) | {"mask_hidden": (1, 1, width)}
    return DrafterLayout(config, fit(source, config, wanted), tuple(source.notes), tuple(source.warnings))


def _stated_mask(source: DrafterSource) -> int | None:
    fields = source.fields
    found = {name: fields.integer(name, -_MAX_ID, MAX_VOCAB_SIZE) for name in _MASK_TOKEN_NAMES if fields.has(name)}
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} {value}" for name, value in found.items())
        source.fault("D122", f"mask token given twice: {listed}", needed="one value")
    return next(iter(found.values()), None)
