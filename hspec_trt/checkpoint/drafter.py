# SPDX-License-Identifier: Apache-2.0
"""The door to drafter checkpoints: a folder, opened and checked against its target.

Owns which files are read and the checks that every drafter shares (tokenizer, stray pickles, mask row of the target's
table); what a drafter's keys and weights are is in `hspec_trt.checkpoint.formats`. No weight is read, but for the mask
row and the vocabulary map.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from hspec_trt.checkpoint.families import EMBEDDING
from hspec_trt.checkpoint.fields import Fields
from hspec_trt.checkpoint.files import CheckpointFolder
from hspec_trt.checkpoint.formats import find_reader
from hspec_trt.checkpoint.formats.layout import DrafterLayout, DrafterSource
from hspec_trt.checkpoint.formats.weights import INTEGER_TENSORS
from hspec_trt.checkpoint.hf_target import MAX_CONFIG_BYTES
from hspec_trt.checkpoint.json_text import parse_object
from hspec_trt.checkpoint.mask_file import check_mask_files, open_mask_file
from hspec_trt.checkpoint.shards import open_weights
from hspec_trt.checkpoint.target_checkpoint import TargetCheckpoint
from hspec_trt.checkpoint.tensors import TensorSource
from hspec_trt.checkpoint.tokenizer_check import TOKENIZER
from hspec_trt.checkpoint.tokenizer_match import MAX_TOKENIZER_BYTES, check_same_tokens
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.drafter_options import DrafterOptions
from hspec_trt.errors import DrafterError, Faults

CONFIG: Final = "config.json"
DEAD_ROW_NORM: Final = 1e-4
_PICKLES: Final = (".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth")


@dataclass(frozen=True)
class DrafterCheckpoint:
    """A drafter whose files are sound and that fits its target.

    Attributes:
        path: the folder.
        tensors: weights by their published name; without ``embed_tokens.weight`` or ``lm_head.weight`` where the
            target's are meant; with ``d2t`` (offsets) exactly where the vocabulary is reduced.
        text_files: config.json and, if there, tokenizer.json.
        warnings: lines for the user. notes: lines that a build prints.
    """

    path: Path
    config: DrafterConfig
    tensors: Mapping[str, TensorSource]
    text_files: Mapping[str, bytes]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def load_drafter(
    path: Path,
    target: TargetCheckpoint,
    options: DrafterOptions | None = None,
    *,
    allow_trailing: bool = False,
    allow_other_tokenizer: bool = False,
) -> DrafterCheckpoint:
    """Open the folder of a drafter.

    Args:
        path: holds config.json and safetensors.
        target: the model that it must fit.
        options: the user's answers, which win over the checkpoint.
        allow_trailing: accept bytes after the last tensor of a safetensors file.
        allow_other_tokenizer: accept a tokenizer.json that differs from the target's.

    Raises:
        DrafterError, CheckpointError: several at once as a `FaultGroup`.
    """
    folder = CheckpointFolder(path)
    text_files = {CONFIG: folder.read(CONFIG, limit=MAX_CONFIG_BYTES)}
    fields = Fields(parse_object(text_files[CONFIG], where=CONFIG), CONFIG)
    faults = Faults()
    if folder.has(TOKENIZER):
        text_files[TOKENIZER] = folder.read(TOKENIZER, limit=MAX_TOKENIZER_BYTES)
        if TOKENIZER in target.text_files and not allow_other_tokenizer:
            with faults.collect():
                check_same_tokens(target.text_files[TOKENIZER], text_files[TOKENIZER])
    names = tuple(folder.names())
    tensors = open_weights(folder, allow_trailing=allow_trailing)
    check_mask_files(names, faults)
    with faults.collect():
        tensors |= open_mask_file(folder, tensors, allow_trailing=allow_trailing)
    source = DrafterSource(fields, tensors, target.config, options or DrafterOptions())
    warnings = _stray_pickles(names)
    layout = None
    with faults.collect():
        layout = find_reader(source)(source)
    faults.raise_any()
    if layout is None:
        raise DrafterError("D001", f"{path} was not read")
    warnings += _dead_mask_row(layout, target)
    notes = (*layout.notes, *_type_notes(layout))
    return DrafterCheckpoint(path, layout.config, layout.tensors, text_files, (*layout.warnings, *warnings), notes)


def position_warning(config: DrafterConfig, max_seq_len: int) -> str | None:
    """The line for an engine that is longer than the drafter was trained for; None where it is not."""
    if max_seq_len <= config.max_position:
        return None
    return (
        f"warning[D140] drafter was trained to {config.max_position} positions, engine max_seq_len is {max_seq_len}: "
        f"drafting stops at {config.max_position}"
    )


def _stray_pickles(names: tuple[str, ...]) -> tuple[str, ...]:
    """Warnings of files that stay unread."""
    return tuple(f"warning[D128] {name} is a pickle and stays unread" for name in names if name.endswith(_PICKLES))


def _dead_mask_row(layout: DrafterLayout, target: TargetCheckpoint) -> tuple[str, ...]:
    """A warning where the mask slots would take a row of the target's table that was never trained."""
    token, rows = layout.config.mask_token_id, target.config.embedding_rows
    if "embed_tokens.weight" in layout.tensors or "mask_embedding" in layout.tensors or not 0 <= token < rows:
        return ()
    norm = float(np.linalg.norm(target.tensors[EMBEDDING].read_row(token).astype(np.float32)))
    return (f"warning[D121] target embedding row {token} (mask) has norm {norm:.1e}",) if norm < DEAD_ROW_NORM else ()


def _type_notes(layout: DrafterLayout) -> tuple[str, ...]:
    types = Counter(source.dtype.name for name, source in layout.tensors.items() if name not in INTEGER_TENSORS)
    if len(types) < 2:
        return ()
    listed = ", ".join(f"{count} {name}" for name, count in types.most_common())
    return (f"drafter weights are stored in several types ({listed}); all are cast",)
