# SPDX-License-Identifier: Apache-2.0
"""A small engine that runs: random weights of the golden H-Spec case, with a byte-level tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from hspec_trt.runtime.llm import LLM
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.serving.triton.repository import ExportOptions, export_repository
from tests.support.golden_pair import GOLDEN
from tests.support.tiny_tokenizer import tokenizer_files

CASE = GOLDEN / "hspec_qwen3"
LIMITS = BuildConfig(max_batch_size=8, max_seq_len=400, max_num_tokens=128, page_size=16)


@pytest.fixture(scope="session")
def tiny_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 rows, 400 tokens a request, 7 drafts a step."""
    folder = tmp_path_factory.mktemp("triton")
    target = shutil.copytree(CASE / "target", folder / "target")
    vocab_size = json.loads((target / "config.json").read_text())["vocab_size"]
    for name, content in tokenizer_files(vocab_size).items():
        (target / name).write_bytes(content)
    build(target, CASE / "drafter", folder / "engine", LIMITS)
    return folder / "engine"


@pytest.fixture(scope="session")
def reference(tiny_engine: Path) -> Iterator[LLM]:
    """The same engine without a server."""
    with LLM(tiny_engine, RuntimeOptions(num_threads=1)) as llm:
        yield llm


@pytest.fixture(scope="session")
def repository(tiny_engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models, one thread each."""
    folder = tmp_path_factory.mktemp("repository") / "models"
    export_repository(tiny_engine, folder, ExportOptions(models="all", num_threads=1, kv_cache_memory=1 << 24))
    return folder
