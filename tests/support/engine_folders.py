# SPDX-License-Identifier: Apache-2.0
"""Engine folders with a manifest and files of no model: for tests of writing, opening and refusing them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hspec_trt.bundle import Manifest, new_folder, record_file
from hspec_trt.bundle.manifest import MANIFEST_FILE
from hspec_trt.config.build import EngineLimits
from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.config.rope import RopeConfig
from hspec_trt.config.target import TargetConfig

TARGET = TargetConfig(
    family="llama",
    vocab_size=61,
    embedding_rows=64,
    hidden_size=64,
    intermediate_size=128,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope=RopeConfig(rope_type="llama3", factor=8.0, original_max_position=32),
    max_position=256,
    eos_token_ids=(2, 3),
)
DRAFTER = HSpecConfig(
    kind="hspec",
    vocab_size=61,
    draft_vocab_size=40,
    hidden_size=64,
    intermediate_size=128,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope=RopeConfig(),
    block_size=8,
    num_drafts=7,
    mask_token_id=60,
    fused_layers=(1, 3),
    max_position=256,
    block_pattern=("mamba", "attention", "mlp"),
    attn_kv_layers=(2,),
    attn_windows=(12,),
)
MANIFEST = Manifest(
    backend="onnxruntime",
    dtype="float32",
    target=TARGET,
    drafter=DRAFTER,
    limits=EngineLimits(4, 128, 64, 16, 7),
    ops=("PagedAttention",),
    artifacts=(),
    files={},
    notes=("lm_head: taken from the target",),
)


def write_engine(output: Path, files: dict[str, bytes], *, force: bool = False, manifest: Manifest = MANIFEST) -> None:
    """A folder with these files and a manifest that records them."""
    with new_folder(output, force=force) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        records = {name: record_file(folder / name) for name in files}
        (folder / MANIFEST_FILE).write_bytes(replace(manifest, files=records).to_json())
