# SPDX-License-Identifier: Apache-2.0
"""Engines of the losslessness tests: golden pairs, ablations, another drafter of the same target, targets alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hspec_trt.checkpoint.target import load_target
from hspec_trt.config.build import EXTENSION_NAMES, BuildConfig, ExtensionName
from hspec_trt.graph.step import drafts_per_step
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.detokenizer import Codec
from hspec_trt.runtime.guided import GuideMaker
from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.ort_session import OrtSession
from hspec_trt.runtime.session import Limits
from tests.support.golden_drafters import load_case, pair_of, target_folder
from tests.support.golden_pair import hspec_pair
from tests.support.graph_engine import ArraySource, Pair, write_engine
from tests.support.tiny_models import t_bigram, t_rand, t_tie, write_target

PAGE_SIZE = 16
NUM_PAGES = 160
MAX_SEQ_LEN = 256


@dataclass(frozen=True)
class Built:
    """An engine to make: which pair, drafts a step (None: the drafter's own), and optional parts of the step."""

    pair: Callable[[Path], Pair]
    num_drafts: int | None = None
    extensions: tuple[ExtensionName, ...] = ()


def tiny(maker: Callable[..., tuple], **changes: object) -> Callable[[Path], Pair]:
    """A tiny target without a drafter, through our own checkpoint loader."""

    def make(folder: Path) -> Pair:
        write_target(folder, *maker(**changes))
        checkpoint = load_target(folder)
        return Pair(checkpoint.config, dict(checkpoint.tensors))

    return make


def with_golden_drafter(folder: Path) -> Pair:
    """T-RAND of the golden drafter's sizes, with that drafter: it knows nothing of this target."""
    target = tiny(t_rand, vocab_size=256, num_layers=6)(folder)
    golden = hspec_pair("hspec_llama")
    return Pair(target.target, target.target_tensors, golden.drafter, golden.drafter_tensors)


def other_drafter(folder: Path) -> Pair:
    """The golden pair with noise on every drafter weight."""
    golden = hspec_pair("hspec_qwen3")
    rng = np.random.default_rng(3)
    assert golden.drafter_tensors is not None
    noisy = {}
    for name, source in golden.drafter_tensors.items():
        values = source.read()
        is_float = values.dtype == np.float32
        noisy[name] = ArraySource(values + rng.normal(0, 0.05, values.shape).astype(np.float32)) if is_float else source
    return Pair(golden.target, golden.target_tensors, golden.drafter, noisy)


def golden(case: str) -> Callable[[Path], Pair]:
    return lambda folder: hspec_pair(case)


def golden_drafter(case: str) -> Callable[[Path], Pair]:
    return lambda folder: pair_of(load_case(case))


ENGINES = {
    "hspec_qwen3": Built(golden("hspec_qwen3")),
    "hspec_llama": Built(golden("hspec_llama")),
    "hspec_noseed": Built(golden("hspec_noseed")),
    "hspec_nokv": Built(golden("hspec_nokv")),
    "hspec_fullattn": Built(golden("hspec_fullattn")),
    "hspec_qwen3_k3": Built(golden("hspec_qwen3"), num_drafts=3),
    "hspec_qwen3_k1": Built(golden("hspec_qwen3"), num_drafts=1),
    "hspec_qwen3_full": Built(golden("hspec_qwen3"), extensions=EXTENSION_NAMES),
    "dflash": Built(golden_drafter("dflash_qwen3"), extensions=EXTENSION_NAMES),
    "dspark": Built(golden_drafter("dspark_qwen3"), extensions=EXTENSION_NAMES),
    "peagle": Built(golden_drafter("peagle_qwen3"), extensions=EXTENSION_NAMES),
    "eagle3": Built(golden_drafter("eagle3_qwen3"), extensions=EXTENSION_NAMES),
    "other_drafter": Built(other_drafter),
    "no_drafter": Built(lambda folder: hspec_pair("hspec_qwen3").without_drafter(), num_drafts=7),
    "t_rand_hspec": Built(with_golden_drafter),
    "t_rand": Built(tiny(t_rand), num_drafts=4),
    "t_rand_mha": Built(tiny(t_rand, num_kv_heads=4), num_drafts=4),
    "t_rand_window": Built(tiny(t_rand, family="qwen3", window=8), num_drafts=4),
    "t_bigram": Built(tiny(t_bigram), num_drafts=4),
    "t_tie": Built(tiny(t_tie, eps=0.0), num_drafts=4),
    "t_tie_ulp": Built(tiny(t_tie, eps=2.0**-24), num_drafts=4),
    "t_tie_1e-3": Built(tiny(t_tie, eps=1e-3), num_drafts=4),
}
DRAFTERS = ("hspec_qwen3_full", "dflash", "dspark", "peagle", "eagle3")
"""One engine for every kind of drafter, with all optional parts of the step."""
HSPEC_ENGINES = tuple(name for name in ENGINES if name.startswith(("hspec", "other", "t_rand_hspec")))

CoreFor = Callable[..., EngineCore]


def target_of(name: str) -> Path:
    """The folder of the target that an engine of `DRAFTERS` has."""
    return target_folder("hspec_qwen3" if name.startswith("hspec_qwen3") else f"{name}_qwen3")


def with_drafters(cases: Iterable[tuple], short: Collection[tuple]) -> list:
    """Parameters of a test: every case with every kind of drafter, H-Spec the first.

    Args:
        short: the cases that the normal run has for the other drafters; what is left is long.
    """
    made = []
    for name, case in product(DRAFTERS, list(cases)):
        normal = name == DRAFTERS[0] or case in short
        made.append(pytest.param(name, *case, marks=() if normal else pytest.mark.long))
    return made


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., OrtSession]:
    """Sessions by engine name; each is made once."""

    @cache
    def make(name: str, prepack: bool = True, max_rows: int = 8) -> OrtSession:
        built, folder = ENGINES[name], tmp_path_factory.mktemp(name)
        pair = built.pair(folder / "target")
        build = BuildConfig(page_size=PAGE_SIZE, num_drafts=built.num_drafts, extensions=built.extensions)
        graph = write_engine(folder / "engine", pair, build)
        drafter = pair.drafter
        limits = Limits(
            vocab_size=pair.target.vocab_size,
            num_drafts=drafts_per_step(drafter, build),
            page_size=PAGE_SIZE,
            page_bytes=0,
            max_rows=max_rows,
            max_tokens=max(128, max_rows * 8),
            max_seq_len=MAX_SEQ_LEN,
            has_drafter=drafter is not None,
            draft_max_position=min(drafter.max_position, MAX_SEQ_LEN) if drafter else 0,
            cache_lookahead=1 if drafter is not None and drafter.needs_next_ids else 0,
            extensions=built.extensions,
        )
        return OrtSession(graph, limits, num_threads=1, prepack=prepack)

    return make


@pytest.fixture
def core_for(sessions: Callable[..., OrtSession]) -> Iterator[CoreFor]:
    """A fresh step loop with clean pages on an engine."""

    def make(
        name: str,
        *,
        options: SchedulerOptions | None = None,
        eos_ids: frozenset[int] = frozenset(),
        num_pages: int = NUM_PAGES,
        draft_max_position: int | None = None,
        decoder: Codec | None = None,
        guides: GuideMaker | None = None,
        **session: object,
    ) -> EngineCore:
        loaded = sessions(name, **session)
        loaded.allocate(num_pages)
        core = EngineCore(loaded, eos_ids=eos_ids, decoder=decoder, guides=guides, options=options)
        if draft_max_position is not None:
            core.scheduler.table.limits = core.scheduler.limits = replace(
                loaded.limits, draft_max_position=draft_max_position
            )
        return core

    yield make
