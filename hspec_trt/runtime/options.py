# SPDX-License-Identifier: Apache-2.0
"""Options of a loaded runtime, as against those of one request or of a build. The only place of their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
        prepack: "on" repacks weights for faster steps of several tokens, at the cost of a copy in memory; "off" uses
            the mapped file as it is; "auto" repacks where the copy is small against free memory.
        kv_cache_memory: bytes of the page pool; None takes `kv_cache_fraction` of free memory.
        kv_cache_fraction: share of free memory for pages, but never more than full rows of full length need.
        scheduler: how steps are filled.
    """

    num_threads: int | None = None
    prepack: Prepack = "auto"
    kv_cache_memory: int | None = None
    kv_cache_fraction: float = 0.25
    scheduler: SchedulerOptions = SchedulerOptions()
