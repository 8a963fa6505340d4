# SPDX-License-Identifier: Apache-2.0
"""The door to target checkpoints: a Hugging Face folder or a GGUF file, opened by what is there.

Every check is made on configuration and file headers, before any weight is read. The exception is a stored head beside
a tied embedding, which is compared with it.
"""

from __future__ import annotations

from pathlib import Path

from hspec_trt.checkpoint.gguf_target import load_gguf
from hspec_trt.checkpoint.hf_target import load_folder
from hspec_trt.checkpoint.target_checkpoint import TargetCheckpoint
from hspec_trt.errors import CheckpointError

__all__ = ["TargetCheckpoint", "load_target"]


def load_target(path: Path, *, allow_trailing: bool = False) -> TargetCheckpoint:
    """Open a target checkpoint.

    Args:
        path: a Hugging Face folder, or a GGUF file.
        allow_trailing: accept bytes after the last tensor of a safetensors file.

    Returns:
        Configuration, weights by canonical name (mapped, read when asked for) and tokenizer files.

    Raises:
        CheckpointError: see `hspec_trt.checkpoint.codes`; several at once as a `FaultGroup`.
    """
    if path.is_dir():
        return load_folder(path, allow_trailing=allow_trailing)
    if path.is_file():
        return load_gguf(path)
    found = f"{path} is neither a folder nor a plain file" if path.exists() else f"{path} does not exist"
    raise CheckpointError("C010", found, needed="a Hugging Face folder or a GGUF file")
