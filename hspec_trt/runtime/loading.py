# SPDX-License-Identifier: Apache-2.0
"""From an engine folder to a session with pages: backend, memory budget, padding, and the table that says so.

One row a backend. Whether the folder's files are whole is `hspec_trt.bundle`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import psutil

from hspec_trt.bundle import EngineFolder, Manifest
from hspec_trt.config.build import Backend
from hspec_trt.errors import Faults, LoadError
from hspec_trt.runtime.external_data import check_external_data
from hspec_trt.runtime.options import Prepack, RuntimeOptions
from hspec_trt.runtime.padding import Padding
from hspec_trt.runtime.session import Limits, Session

MAX_THREADS: Final = 512
MAX_PREPACK_SHARE: Final = 0.25
"""With prepack="auto", weights are repacked where the copy takes at most this share of free memory."""


@dataclass(frozen=True)
class MemoryTable:
    """Where a loaded engine's memory goes, bytes.

    Attributes:
        weights: the weight files, mapped.
        prepacked: copies of weights that the backend repacked.
        pages: the page pool; `num_pages` pages of `page_bytes`, for `tokens` tokens in all.
        free: free memory before loading.
    """

    weights: int
    prepacked: int
    pages: int
    num_pages: int
    page_bytes: int
    tokens: int
    free: int


@dataclass(frozen=True)
class Loaded:
    """A session that can run, and its memory table."""

    session: Session
    memory: MemoryTable


def load_session(folder: EngineFolder, options: RuntimeOptions) -> Loaded:
    """Load an engine's first artifact and give it pages.

    Raises:
        LoadError: L030 to L036.
    """
    check_options(options)
    manifest, free = folder.manifest, free_memory()
    if manifest.backend not in _BACKENDS:
        known = ", ".join(_BACKENDS)
        raise LoadError("L032", f"backend {manifest.backend!r} cannot be run here", needed=f"one of {known}")
    session, prepacked = _BACKENDS[manifest.backend](folder, options, free)
    limits = session.limits
    num_pages = _num_pages(limits, options, free - prepacked)
    session.allocate(num_pages)
    weights = sum(folder.manifest.files[name].size for name in manifest.weight_files)
    pages = num_pages * limits.page_bytes
    tokens = (num_pages - 1) * limits.page_size
    return Loaded(session, MemoryTable(weights, prepacked, pages, num_pages, limits.page_bytes, tokens, free))


def check_options(options: RuntimeOptions) -> None:
    """Refuse options that no engine can be loaded with.

    Raises:
        LoadError: L036 for each, together.
    """
    faults, threads, memory = Faults(), options.num_threads, options.kv_cache_memory
    for ok, name, found, needed in (
        (threads is None or 1 <= threads <= MAX_THREADS, "num_threads", threads, f"1 to {MAX_THREADS}"),
        (options.prepack in get_args(Prepack), "prepack", options.prepack, ", ".join(get_args(Prepack))),
        (memory is None or memory > 0, "kv_cache_memory", memory, "a number of bytes"),
        (0.0 < options.kv_cache_fraction <= 1.0, "kv_cache_fraction", options.kv_cache_fraction, "above 0, at most 1"),
    ):
        if not ok:
            faults.add(LoadError("L036", f"{name} is {found}", needed=needed))
    faults.raise_any()


def limits_of(manifest: Manifest) -> Limits:
    """The limits of a built engine; `page_bytes` is the session's to fill in."""
    limits, drafter = manifest.limits, manifest.drafter
    return Limits(
        vocab_size=manifest.target.vocab_size,
        num_drafts=limits.num_drafts,
        page_size=limits.page_size,
        page_bytes=0,
        max_rows=limits.max_batch_size,
        max_tokens=limits.max_num_tokens,
        max_seq_len=limits.max_seq_len,
        has_drafter=drafter is not None,
        draft_max_position=drafter.max_position if drafter else 0,
        cache_lookahead=1 if drafter is not None and drafter.needs_next_ids else 0,
        extensions=limits.extensions,
    )


def free_memory() -> int:
    """Bytes that this process may still take, of the machine or of its control group, whichever has less."""
    free = int(psutil.virtual_memory().available)
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and used.is_file() and (text := limit.read_text().strip()).isdigit():
        free = min(free, max(int(text) - int(used.read_text()), 0))
    return free


def _load_ort(folder: EngineFolder, options: RuntimeOptions, free: int) -> tuple[Session, int]:
    try:
        from hspec_trt.runtime.ort_session import OrtSession
    except ModuleNotFoundError as error:
        fix = "Install it: pip install 'hspec_trt[cpu]'"
        raise LoadError("L033", f"the onnxruntime backend needs {error.name}", fix=fix) from error
    manifest = folder.manifest
    graph = folder.file(manifest.artifacts[0].file)
    check_external_data(graph)
    weights = sum(manifest.files[name].size for name in manifest.weight_files)
    prepack = options.prepack == "on" or (options.prepack == "auto" and weights <= MAX_PREPACK_SHARE * free)
    grouped = manifest.target.num_heads > manifest.target.num_kv_heads
    padding = Padding.needed(prepacked=prepack, grouped_heads=grouped)
    limits = limits_of(manifest)
    session = OrtSession(graph, limits, num_threads=options.num_threads, prepack=prepack, padding=padding)
    return session, weights if prepack else 0


_BACKENDS: Final[dict[Backend, Callable[[EngineFolder, RuntimeOptions, int], tuple[Session, int]]]] = {
    "onnxruntime": _load_ort,
}


def _num_pages(limits: Limits, options: RuntimeOptions, free: int) -> int:
    """Pages of the pool, the null page included: what the budget holds, at most what full rows of full length take."""
    budget = options.kv_cache_memory
    if budget is None:
        budget = int(free * options.kv_cache_fraction)
    most = limits.max_rows * limits.max_pages_per_row + 1
    count = min(budget // limits.page_bytes, most)
    if count < 2:
        needed = f"{2 * limits.page_bytes} for one page of {limits.page_size} tokens and the null page"
        fix = "Raise --kv-cache-memory"
        raise LoadError("L035", f"{budget} bytes for pages", needed=needed, fix=fix)
    return int(count)
