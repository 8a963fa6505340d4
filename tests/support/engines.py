# SPDX-License-Identifier: Apache-2.0
"""Whole engine folders for tests of the runtime: graph, weights, tokenizer and manifest, as a build leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hspec_trt.bundle import Artifact, Manifest, record_file
from hspec_trt.config.build import BuildConfig, EngineLimits
from hspec_trt.graph.step import drafts_per_step
from tests.support.graph_engine import Pair, write_engine


def make_engine(
    folder: Path,
    pair: Pair,
    *,
    build: BuildConfig | None = None,
    eos_token_ids: tuple[int, ...] = (),
    text_files: Mapping[str, bytes] | None = None,
) -> Path:
    """Write an engine folder and return it."""
    build = build or BuildConfig(page_size=16, max_batch_size=8, max_num_tokens=128)
    write_engine(folder, pair, build)
    for name, data in (text_files or {}).items():
        (folder / name).write_bytes(data)
    limits = EngineLimits(
        max_batch_size=build.max_batch_size,
        max_seq_len=build.max_seq_len or pair.target.max_position,
        max_num_tokens=build.max_num_tokens,
        page_size=build.page_size,
        num_drafts=drafts_per_step(pair.drafter, build),
        extensions=build.extensions or (),
    )
    files = {path.name: record_file(path) for path in sorted(folder.iterdir())}
    manifest = Manifest(
        backend="onnxruntime",
        dtype=build.dtype,
        target=replace(pair.target, eos_token_ids=eos_token_ids),
        drafter=pair.drafter,
        limits=limits,
        ops=(),
        artifacts=(Artifact("onnxruntime", "graph.onnx"),),
        files=files,
    )
    (folder / "config.json").write_bytes(manifest.to_json())
    return folder
