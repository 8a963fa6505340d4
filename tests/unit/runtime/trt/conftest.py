# SPDX-License-Identifier: Apache-2.0
"""Graphs of golden pairs with the feedback of drafts, and sessions on the double."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hspec_trt.config.build import FEEDBACK, BuildConfig, ExtensionName
from hspec_trt.runtime.ort_session import OrtSession
from hspec_trt.runtime.session import Limits
from tests.support.golden_drafters import load_case, pair_of
from tests.support.graph_engine import write_engine
from tests.support.trt_engine import DoubledSession, doubled_session

PAGE_SIZE = 16
MAX_SEQ_LEN = 256
NUM_PAGES = 96

Doubled = Callable[..., DoubledSession]


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Limits]]:
    """Graph and limits by golden case; each is made once."""

    @cache
    def make(
        case: str, extensions: tuple[ExtensionName, ...] = (FEEDBACK,), drafter: bool = True
    ) -> tuple[Path, Limits]:
        pair = pair_of(load_case(case))
        if not drafter:
            pair = pair.without_drafter()
        build = BuildConfig(page_size=PAGE_SIZE, extensions=extensions, num_drafts=None if drafter else 7)
        graph = write_engine(tmp_path_factory.mktemp(case), pair, build)
        drafts = pair.drafter.num_drafts if pair.drafter else 7
        limits = Limits(
            vocab_size=pair.target.vocab_size,
            num_drafts=drafts,
            page_size=PAGE_SIZE,
            page_bytes=0,
            max_rows=5,
            max_tokens=96,
            max_seq_len=MAX_SEQ_LEN,
            has_drafter=drafter,
            draft_max_position=min(pair.drafter.max_position, MAX_SEQ_LEN) if pair.drafter else 0,
            cache_lookahead=1 if pair.drafter is not None and pair.drafter.needs_next_ids else 0,
            extensions=extensions,
        )
        return graph, limits

    return make


@pytest.fixture(scope="session")
def doubled(graphs: Callable[..., tuple[Path, Limits]]) -> Doubled:
    """A fresh session on the double, with pages."""

    def make(
        case: str = "hspec_qwen3",
        *,
        extensions: tuple[ExtensionName, ...] = (FEEDBACK,),
        drafter: bool = True,
        num_pages: int = NUM_PAGES,
        max_rows: int = 5,
        **options: Any,
    ) -> DoubledSession:
        graph, limits = graphs(case, extensions, drafter)
        made = doubled_session(graph, replace(limits, max_rows=max_rows), **options)
        made.session.allocate(num_pages)
        return made

    return make


@pytest.fixture(scope="session")
def reference(graphs: Callable[..., tuple[Path, Limits]]) -> Callable[..., OrtSession]:
    """The same graph on ONNX Runtime; shared, so allocate pages before use."""

    @cache
    def make(
        case: str = "hspec_qwen3", extensions: tuple[ExtensionName, ...] = (FEEDBACK,), drafter: bool = True
    ) -> OrtSession:
        graph, limits = graphs(case, extensions, drafter)
        return OrtSession(graph, limits, num_threads=1)

    return make
