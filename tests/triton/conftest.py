# SPDX-License-Identifier: Apache-2.0
"""A small engine that runs (random weights of the golden H-Spec case, with a byte-level tokenizer), and a real server.

The server comes from PyPI (`build_scripts/triton_server.py`). A machine where it cannot be installed or started fails
the tests that use it; it does not skip them.
"""

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
from tests.support.triton_checks import Variant, load_variant
from tests.support.triton_server import TritonServer, triton_server

CASE = GOLDEN / "hspec_qwen3"
MAX_SEQ_LEN = 4000
"""So that there are requests that last for seconds."""
KV_CACHE_MEMORY = 1 << 27
"""Room for the longest request in each row of both models that load the engine."""
LIMITS = BuildConfig(max_batch_size=8, max_seq_len=MAX_SEQ_LEN, max_num_tokens=128, page_size=16)


@pytest.fixture(scope="session")
def tiny_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 rows, 4000 tokens a request, 7 drafts a step."""
    folder = tmp_path_factory.mktemp("triton")
    target = shutil.copytree(CASE / "target", folder / "target")
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "max_position_embeddings": MAX_SEQ_LEN}))
    for name, content in tokenizer_files(config["vocab_size"]).items():
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
    export_repository(tiny_engine, folder, ExportOptions(models="all", num_threads=1, kv_cache_memory=KV_CACHE_MEMORY))
    return folder


@pytest.fixture(scope="package")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    models = shutil.copytree(repository, tmp_path_factory.mktemp("served") / "models")
    with triton_server(models, tmp_path_factory.mktemp("log") / "server.log") as running:
        yield running


@pytest.fixture(scope="package")
def variant(server: TritonServer, tiny_engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Variant:
    def load(name: str, code: str = "", **options: object) -> str:
        if not (server.repository / name).exists():
            folder = tmp_path_factory.mktemp(name) / "r"
            memory = {"kv_cache_memory": KV_CACHE_MEMORY // 2}
            load_variant(server, tiny_engine, folder, name, code, **memory | options)
        return name

    return load
