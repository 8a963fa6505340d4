# SPDX-License-Identifier: Apache-2.0
"""A tiny step graph with its weights, and the fake TensorRT."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hspec_trt.config.build import BuildConfig, EngineLimits
from tests.support.golden_pair import hspec_pair
from tests.support.graph_engine import write_engine

FAKE = Path(__file__).resolve().parents[2] / "support" / "fake_trt"
LIMITS = EngineLimits(max_batch_size=4, max_seq_len=256, max_num_tokens=64, page_size=16, num_drafts=7)


@dataclass(frozen=True)
class Step:
    """A step graph on disk."""

    graph: bytes
    weights: Path
    config: BuildConfig


@pytest.fixture(scope="session")
def step(tmp_path_factory: pytest.TempPathFactory) -> Step:
    """hspec_qwen3 of the golden cases, in bfloat16."""
    config = BuildConfig(
        backend="tensorrt-rtx", dtype="bfloat16", max_seq_len=256, max_batch_size=4, max_num_tokens=64, page_size=16
    )
    graph = write_engine(tmp_path_factory.mktemp("step"), hspec_pair("hspec_qwen3"), config)
    return Step(graph.read_bytes(), graph.with_name("weights.safetensors"), config)


@pytest.fixture
def fake_trt(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts the fake TensorRT before a real one, here and in child processes; called with how the build ends."""
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    importlib.invalidate_caches()
    return lambda way: monkeypatch.setenv("HSPEC_FAKE_TRT", way)
