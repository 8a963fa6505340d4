# SPDX-License-Identifier: Apache-2.0
"""One small engine, served once for all tests of this folder, and the same engine without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from hspec_trt import LLM, RuntimeOptions
from tests.support.openai_engine import build_tiny_engine
from tests.support.openai_server import Server, serving

MAX_ANSWERS = 40
MAX_BODY = 1 << 20


@pytest.fixture(scope="session")
def tiny_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_engine(tmp_path_factory.mktemp("openai"))


@pytest.fixture(scope="session")
def server(tiny_engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("server") / "log"
    limits = ["--max-answers", str(MAX_ANSWERS), "--max-body-size", str(MAX_BODY)]
    times = ["--read-timeout", "3", "--write-timeout", "3"]
    trace = ["--trace", str(log.with_name("trace.json")), "--served-model-name", "tiny", "--served-model-name", "alias"]
    with serving(tiny_engine, log, *limits, *times, *trace) as running:
        yield running
        assert running.process.poll() is None, "a request ended the server"


@pytest.fixture(scope="session")
def reference(tiny_engine: Path) -> Iterator[LLM]:
    """The same engine without a server."""
    with LLM(tiny_engine, RuntimeOptions(num_threads=1, kv_cache_memory=1 << 24)) as llm:
        yield llm


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made
