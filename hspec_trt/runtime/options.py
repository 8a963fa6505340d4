# SPDX-License-Identifier: Apache-2.0
"""Options of a loaded runtime, as against those of one request or of a build. The only place of their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

MAX_THREADS: Final = 512
Prepack = Literal["auto", "on", "off"]


@dataclass(frozen=True)
class SchedulerOptions:
    """How steps are filled.

    Attributes:
        max_batch_size: rows of a step; None takes the engine's limit.
        max_num_tokens: packed tokens of a step; None takes the engine's limit.
        max_chunk: prompt tokens of one row in one step; None is as many as the step takes.
        prefix_cache: keep pages of ended requests for those that start alike.
    """

    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    max_chunk: int | None = None
    prefix_cache: bool = True


@dataclass(frozen=True)
class RuntimeOptions:
    """How an engine is loaded.

    Attributes:
        num_threads: threads of a step on the onnxruntime backend; None is all cores of this process.
        prepack: "on" repacks weights for faster steps of several tokens: they then lie in memory of this process; "off"
            uses the mapped file as it is, which the system can share and take back; "auto" repacks where the weights
            are small against free memory. Either way they are held once.
        kv_cache_memory: bytes of the page pool; None takes `kv_cache_fraction` of free memory.
        kv_cache_fraction: share of free memory for pages, but never more than full rows of full length need.
        cuda_graphs: record decode steps of a GPU engine as CUDA graphs.
        scheduler: how steps are filled.
        trace: file for a trace of the steps (`hspec_trt.runtime.trace`); None writes none.
    """

    num_threads: int | None = None
    prepack: Prepack = "auto"
    kv_cache_memory: int | None = None
    kv_cache_fraction: float = 0.25
    cuda_graphs: bool = True
    scheduler: SchedulerOptions = SchedulerOptions()
    trace: Path | None = None
