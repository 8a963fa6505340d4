# SPDX-License-Identifier: Apache-2.0
"""From an engine folder to a session with pages: backend, memory budget, padding, and the table that says so.

One row a backend. Whether the folder's files are whole is `hspec_trt.bundle`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, get_args

from hspec_trt.bundle import EngineFolder, Manifest
from hspec_trt.config.build import Backend
from hspec_trt.errors import Faults, LoadError
from hspec_trt.machine import free_memory
from hspec_trt.runtime.external_data import check_external_data
from hspec_trt.runtime.mapped_file import let_go
from hspec_trt.runtime.options import MAX_THREADS, Prepack, RuntimeOptions
from hspec_trt.runtime.padding import Padding
from hspec_trt.runtime.session import Limits, Session

MAX_PREPACK_SHARE: Final = 0.25
"""With prepack="auto", weights are repacked where they take at most this share of free memory."""


@dataclass(frozen=True)
class MemoryTable:
    """Where a loaded engine's memory goes, bytes.

    Attributes:
        weights: the weights, held once: in the mapped files, in the backend's own form, or in a compiled plan.
        prepacked: those of them that lie in memory of this process, repacked; their place in the file is let go. A
            table of embeddings that is also the head is there twice, but of the mapped one only rows in use are held.
        pages: the page pool; `num_pages` pages of `page_bytes`, for `tokens` tokens in all.
        free: free memory before loading; on a GPU, of the device, beside the plan.
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
        LoadError: L002, L030 to L039, L042.
    """
    check_options(options)
    made = _BACKENDS[folder.manifest.backend](folder, options)
    session, limits = made.session, made.session.limits
    num_pages = _num_pages(limits, options, made.free - made.prepacked)
    session.allocate(num_pages)
    pages = num_pages * limits.page_bytes
    tokens = (num_pages - 1) * limits.page_size
    table = MemoryTable(made.weights, made.prepacked, pages, num_pages, limits.page_bytes, tokens, made.free)
    return Loaded(session, table)


def check_options(options: RuntimeOptions) -> None:
    """Refuse options that no engine can be loaded with.

    Raises:
        LoadError: L036 for each, together.
    """
    faults, threads, memory = Faults(), options.num_threads, options.kv_cache_memory
    for ok, name, found, needed in (
        (threads is None or 1 <= threads <= MAX_THREADS, "num_threads (--threads)", threads, f"1 to {MAX_THREADS}"),
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


@dataclass(frozen=True)
class _Made:
    """A session without pages, and what there is to share out (`MemoryTable`)."""

    session: Session
    weights: int
    prepacked: int
    free: int


def _load_ort(folder: EngineFolder, options: RuntimeOptions) -> _Made:
    try:
        from hspec_trt.runtime.ort_session import OrtSession
    except ModuleNotFoundError as error:
        fix = "Install it: pip install 'hspec_trt[cpu]'"
        raise LoadError("L033", f"the onnxruntime backend needs {error.name}", fix=fix) from error
    manifest, free = folder.manifest, free_memory()
    graph = folder.file(folder.artifact().file)
    check_external_data(graph)
    weights = sum(manifest.files[name].size for name in manifest.weight_files)
    prepack = options.prepack == "on" or (options.prepack == "auto" and weights <= MAX_PREPACK_SHARE * free)
    grouped = manifest.target.num_heads > manifest.target.num_kv_heads
    padding = Padding.needed(prepacked=prepack, grouped_heads=grouped)
    limits = limits_of(manifest)
    session = OrtSession(graph, limits, num_threads=options.num_threads, prepack=prepack, padding=padding)
    if prepack:  # ONNX Runtime unmaps what it repacked, but for tables that are looked up in too
        for name in manifest.weight_files:
            let_go(folder.file(name))
    return _Made(session, weights, weights if prepack else 0, free)


def _load_trt(folder: EngineFolder, options: RuntimeOptions) -> _Made:
    from hspec_trt.runtime.trt.loading import load_trt_session

    session, free = load_trt_session(folder, limits_of(folder.manifest), use_graphs=options.cuda_graphs)
    plan = folder.artifact().file
    return _Made(session, folder.manifest.files[plan].size, 0, free)


_BACKENDS: Final[dict[Backend, Callable[[EngineFolder, RuntimeOptions], _Made]]] = {
    "onnxruntime": _load_ort,
    "tensorrt-rtx": _load_trt,
    "tensorrt": _load_trt,
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
