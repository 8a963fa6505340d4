# SPDX-License-Identifier: Apache-2.0
"""An engine folder with a manifest and a tokenizer, enough for exporting a Triton repository, not for running."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hspec_trt.bundle import EngineFolder, Manifest, new_folder, open_engine, record_file
from hspec_trt.bundle.manifest import MANIFEST_FILE
from hspec_trt.config.build import Backend, EngineLimits
from hspec_trt.config.rope import RopeConfig
from hspec_trt.config.target import TargetConfig
from tests.support.tiny_tokenizer import EOS_ID, tokenizer_files

VOCAB_SIZE = 96
MANIFEST = Manifest(
    backend="onnxruntime",
    dtype="float32",
    target=TargetConfig(
        family="llama",
        vocab_size=VOCAB_SIZE,
        embedding_rows=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_layers=4,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rms_norm_eps=1e-5,
        rope=RopeConfig(),
        max_position=256,
        eos_token_ids=(EOS_ID,),
    ),
    drafter=None,
    limits=EngineLimits(4, 128, 64, 16, 7),
    ops=(),
    artifacts=(),
    files={},
)


def write_paper_engine(folder: Path, *, backend: Backend = "onnxruntime", tokenizer: bool = True) -> EngineFolder:
    """Write such a folder and open it."""
    files = tokenizer_files(VOCAB_SIZE) if tokenizer else {}
    with new_folder(folder, force=False) as new:
        for name, content in files.items():
            (new / name).write_bytes(content)
        records = {name: record_file(new / name) for name in files}
        (new / MANIFEST_FILE).write_bytes(replace(MANIFEST, backend=backend, files=records).to_json())
    return open_engine(folder)
