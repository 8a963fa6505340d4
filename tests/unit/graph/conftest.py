# SPDX-License-Identifier: Apache-2.0
"""Engines of golden cases, made once for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hspec_trt.config.build import BuildConfig
from hspec_trt.config.drafters_block import WindowRule
from tests.support.golden_pair import hspec_pair
from tests.support.graph_engine import Engine, Pair, write_engine

GoldenEngine = Callable[..., Engine]
PAGE_SIZE = 16


@pytest.fixture(scope="session")
def golden_engine(tmp_path_factory: pytest.TempPathFactory) -> GoldenEngine:
    """`golden_engine(case, drafter=True, probes=False)`: engines share a graph, never pages."""
    graphs = {}

    def make(
        case: str,
        *,
        drafter: bool = True,
        probes: bool = False,
        num_pages: int = 64,
        draft_window: WindowRule = "serving",
    ) -> Engine:
        pair: Pair = hspec_pair(case) if drafter else hspec_pair(case).without_drafter()
        build = BuildConfig(page_size=PAGE_SIZE, num_drafts=7, draft_window=draft_window)
        key = (case, drafter, probes, draft_window)
        if key not in graphs:
            graphs[key] = write_engine(tmp_path_factory.mktemp(case), pair, build, probes=probes)
        return Engine(graphs[key], pair, build, num_pages=num_pages)

    return make
