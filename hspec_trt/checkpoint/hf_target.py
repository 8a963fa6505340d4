# SPDX-License-Identifier: Apache-2.0
"""Opens a target stored as a Hugging Face folder.

Owns which files of the folder are read. It does not know their formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hspec_trt.checkpoint.files import MEBIBYTE, CheckpointFolder
from hspec_trt.checkpoint.hf_config import CONFIG, GENERATION_CONFIG, read_target_config
from hspec_trt.checkpoint.json_text import parse_object
from hspec_trt.checkpoint.shards import open_weights
from hspec_trt.checkpoint.target_checkpoint import TargetCheckpoint, assemble
from hspec_trt.checkpoint.tensors import TensorSource
from hspec_trt.checkpoint.tokenizer_check import TOKENIZER, check_tokenizer
from hspec_trt.config.target import TargetConfig
from hspec_trt.errors import Faults

MAX_CONFIG_BYTES: Final = MEBIBYTE
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
CHAT_TEMPLATE: Final = "chat_template.jinja"
_CACHE_PREFIX: Final = "models--"
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
    files = read_text_files(folder)
    config: TargetConfig | None = None
    tensors: Mapping[str, TensorSource] = {}
    warnings: tuple[str, ...] = ()
    faults = Faults()
    with faults.collect():
        config = folder_config(folder, files)
        warnings = check_tokenizer(files, folder, config.vocab_size)
    with faults.collect():
        tensors = open_weights(folder, allow_trailing=allow_trailing)
    faults.raise_any()
    assert config is not None  # else a fault was raised
    return assemble(path, config, tensors, files, warnings)


def read_text_files(folder: CheckpointFolder) -> dict[str, bytes]:
    """The configuration and tokenizer files of a folder, each read once.

    A chat template that stands in tokenizer_config.json is given as a file of its own too.

    Raises:
        CheckpointError: C001, C010, C011.
    """
    names = {CONFIG: _TEXT_FILES[CONFIG]} | {name: limit for name, limit in _TEXT_FILES.items() if folder.has(name)}
    files = {name: folder.read(name, limit=limit) for name, limit in names.items()}
    if CHAT_TEMPLATE not in files and TOKENIZER_CONFIG in files:
        template = parse_object(files[TOKENIZER_CONFIG], where=TOKENIZER_CONFIG).get("chat_template")
        if isinstance(template, str):
            files[CHAT_TEMPLATE] = template.encode()
    return files


def target_name(path: Path) -> str:
    """What a folder's model is called: ``owner/name`` in a Hugging Face cache, else the folder's own name."""
    real = path.resolve()
    repository = real.parent.parent.name
    if real.parent.name == "snapshots" and repository.startswith(_CACHE_PREFIX):
        return repository.removeprefix(_CACHE_PREFIX).replace("--", "/")
    return real.name


def folder_config(folder: CheckpointFolder, files: Mapping[str, bytes]) -> TargetConfig:
    """The target configuration of a folder; no tensor file is opened.

    Args:
        files: from `read_text_files`.

    Raises:
        CheckpointError: C011 to C013, C030 to C040.
    """
    config = parse_object(files[CONFIG], where=CONFIG)
    generation = parse_object(files[GENERATION_CONFIG], where=GENERATION_CONFIG) if GENERATION_CONFIG in files else {}
    return read_target_config(config, generation, name=target_name(folder.path))
