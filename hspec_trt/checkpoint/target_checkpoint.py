# SPDX-License-Identifier: Apache-2.0
"""A target checkpoint once it is open, whatever it was stored as, and the last checks on it.

Owns what follows from configuration and tensors together: padding rows, tied heads, notes on types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hspec_trt.checkpoint.families import EMBEDDING, HEAD, IGNORED, target_weights
from hspec_trt.checkpoint.mapping import match_weights
from hspec_trt.checkpoint.tensors import TensorSource
from hspec_trt.config.target import TargetConfig
from hspec_trt.errors import CheckpointError, Faults

_COMPARED_ROWS: Final = 1024
_TIE_HINT: Final = f"If the embedding is also the head ({HEAD}), set tie_word_embeddings to true in config.json"


@dataclass(frozen=True)
class TargetCheckpoint:
    """A target whose files are sound and whose weights are all there.

    Attributes:
        path: the folder or file.
        tensors: weights by canonical Hugging Face name; ``lm_head.weight`` is absent when it is the embedding.
        text_files: tokenizer and configuration files by name; made from its metadata for GGUF.
        warnings: lines for the user.
    """

    path: Path
    config: TargetConfig
    tensors: Mapping[str, TensorSource]
    text_files: Mapping[str, bytes]
    warnings: tuple[str, ...] = ()


def assemble(
    path: Path,
    config: TargetConfig,
    found: Mapping[str, TensorSource],
    text_files: Mapping[str, bytes],
    warnings: tuple[str, ...] = (),
) -> TargetCheckpoint:
    """Fit the tensors of a checkpoint to its configuration.

    Args:
        path: the folder or file, for messages.
        config: as read from the configuration alone.
        found: all tensors by canonical name.

    Raises:
        CheckpointError: C020 to C025, C034; several at once as a `FaultGroup`.
    """
    faults = Faults()
    config = replace(config, embedding_rows=_embedding_rows(config, found, path.name, faults))
    if config.tie_word_embeddings and HEAD in found and EMBEDDING in found:
        with faults.collect():
            _check_tied(found[EMBEDDING], found[HEAD], path.name)
        found = {name: source for name, source in found.items() if name != HEAD}
    hint = "" if config.tie_word_embeddings or HEAD in found else _TIE_HINT
    tensors: Mapping[str, TensorSource] = {}
    with faults.collect():
        tensors = match_weights(target_weights(config), found, ignored=IGNORED, where=path.name, hint=hint)
    faults.raise_any()
    return TargetCheckpoint(path, config, tensors, text_files, (*warnings, *_type_notes(tensors)))


def _embedding_rows(config: TargetConfig, found: Mapping[str, TensorSource], where: str, faults: Faults) -> int:
    if EMBEDDING not in found or len(found[EMBEDDING].shape) != 2:
        return config.vocab_size
    rows = found[EMBEDDING].shape[0]
    if rows < config.vocab_size:
        needed = f"at least vocab_size, {config.vocab_size}"
        faults.add(CheckpointError("C034", f"{EMBEDDING} has {rows} rows", needed=needed, where=where))
    return rows


def _check_tied(embedding: TensorSource, head: TensorSource, where: str) -> None:
    """Refuse a stored head that differs from the embedding it is tied to; reads both, a block of rows at a time."""
    if embedding.shape == head.shape and _same(embedding.read(), head.read()):
        return
    found = (
        f"tie_word_embeddings is true, but {HEAD} differs from {EMBEDDING}: norms {_norm(head)} and {_norm(embedding)}"
    )
    fix = "Set tie_word_embeddings to false if the head is meant to be its own, or remove the head"
    raise CheckpointError("C024", found, where=where, fix=fix)


def _same(left: NDArray[np.generic], right: NDArray[np.generic]) -> bool:
    blocks = range(0, len(left), _COMPARED_ROWS)
    return all(np.array_equal(left[i : i + _COMPARED_ROWS], right[i : i + _COMPARED_ROWS]) for i in blocks)


def _norm(source: TensorSource) -> str:
    values = source.read()
    rows = (values[i : i + _COMPARED_ROWS].astype(np.float64) for i in range(0, len(values), _COMPARED_ROWS))
    return f"{sum(float(np.square(block).sum()) for block in rows) ** 0.5:.6g}"


def _type_notes(tensors: Mapping[str, TensorSource]) -> tuple[str, ...]:
    counts = Counter(source.dtype.name for source in tensors.values())
    if len(counts) < 2:
        return ()
    main = counts.most_common(1)[0][0]
    other = next(source for source in tensors.values() if source.dtype.name != main)
    listed = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    return (f"weights are stored in several types ({listed}), e.g. {other.name} in {other.dtype.name}; all are cast",)
