# SPDX-License-Identifier: Apache-2.0
"""An engine folder with a manifest and a tokenizer, enough for exporting a Triton repository, not for running."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hspec_trt.bundle import EngineFolder, open_engine
from hspec_trt.config.build import Backend
from hspec_trt.config.rope import RopeConfig
from tests.support import engine_folders
from tests.support.tiny_tokenizer import EOS_ID, tokenizer_files

VOCAB_SIZE = 96
TARGET = replace(
    engine_folders.TARGET,
    vocab_size=VOCAB_SIZE,
    embedding_rows=VOCAB_SIZE,
    rope=RopeConfig(),
    eos_token_ids=(EOS_ID,),
)
MANIFEST = replace(engine_folders.MANIFEST, target=TARGET, drafter=None, ops=(), notes=())


def write_paper_engine(folder: Path, *, backend: Backend = "onnxruntime", tokenizer: bool = True) -> EngineFolder:
    """Write such a folder and open it."""
    files = tokenizer_files(VOCAB_SIZE) if tokenizer else {}
    engine_folders.write_engine(folder, files, manifest=replace(MANIFEST, backend=backend))
    return open_engine(folder)
