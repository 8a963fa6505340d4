# SPDX-License-Identifier: Apache-2.0
"""Opens a target stored as a Hugging Face folder.

Owns which files of the folder are read. It does not know their formats.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hspec_trt.checkpoint.files import MEBIBYTE, CheckpointFolder
from hspec_trt.checkpoint.hf_config import CONFIG, GENERATION_CONFIG, read_target_config
from hspec_trt.checkpoint.json_text import parse_object
from hspec_trt.checkpoint.shards import open_weights
from hspec_trt.checkpoint.target_checkpoint import TargetCheckpoint, assemble
from hspec_trt.config.target import TargetConfig

MAX_CONFIG_BYTES: Final = MEBIBYTE
TOKENIZER: Final = "tokenizer.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
CHAT_TEMPLATE: Final = "chat_template.jinja"
_TEXT_FILES: Final = {
    CONFIG: MAX_CONFIG_BYTES,
    GENERATION_CONFIG: MAX_CONFIG_BYTES,
    TOKENIZER: 256 * MEBIBYTE,
    TOKENIZER_CONFIG: 16 * MEBIBYTE,
    CHAT_TEMPLATE: MEBIBYTE,
}


def load_folder(path: Path, *, allow_trailing: bool = False) -> TargetCheckpoint:
    """Open a Hugging Face folder.

    Args:
        allow_trailing: accept bytes after the last tensor of a safetensors file.

    Raises:
        CheckpointError: see `hspec_trt.checkpoint.codes`; several at once as a `FaultGroup`.
    """
    folder = CheckpointFolder(path)
    config = read_folder_config(folder)
    tensors = open_weights(folder, allow_trailing=allow_trailing)
    return assemble(path, config, tensors, _text_files(folder))


def read_folder_config(folder: CheckpointFolder) -> TargetConfig:
    """The target configuration of a folder; no tensor file is opened."""
    config = parse_object(folder.read(CONFIG, limit=MAX_CONFIG_BYTES), where=CONFIG)
    generation = {}
    if folder.has(GENERATION_CONFIG):
        data = folder.read(GENERATION_CONFIG, limit=MAX_CONFIG_BYTES)
        generation = parse_object(data, where=GENERATION_CONFIG)
    return read_target_config(config, generation, name=folder.path.resolve().name)


def _text_files(folder: CheckpointFolder) -> dict[str, bytes]:
    files = {name: folder.read(name, limit=limit) for name, limit in _TEXT_FILES.items() if folder.has(name)}
    if CHAT_TEMPLATE not in files and TOKENIZER_CONFIG in files:
        template = parse_object(files[TOKENIZER_CONFIG], where=TOKENIZER_CONFIG).get("chat_template")
        if isinstance(template, str):
            files[CHAT_TEMPLATE] = template.encode()
    return files
