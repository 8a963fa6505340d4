# SPDX-License-Identifier: Apache-2.0
"""The model's metrics on the server's metrics port: TensorRT-LLM's names where one exists, ours with ``hspec_``.

Each series carries the labels model, version and instance, and the one of its family. Figures are read from the
runtime now and then; a counter is raised by what was added since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hspec_trt.serving.triton.backend import Backend, Metric, MetricKind, ModelArgs
from hspec_trt.serving.triton.engine import ServedEngine
from hspec_trt.serving.triton.results import Ending

_TOKEN_BUCKETS: Final = [10, 50, 100, 500, 1000]
_SECOND_BUCKETS: Final = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]

Values = Mapping[str, float]


@dataclass(frozen=True)
class _Family:
    """A gauge or counter family and where its figures come from; `label` is empty where it has one series."""

    name: str
    kind: MetricKind
    label: str
    description: str
    read: Callable[[ServedEngine], Values]


def _requests(engine: ServedEngine) -> Values:
    scheduler, context = engine.core.scheduler, _context_rows(engine)
    running, waiting = len(scheduler.running), scheduler.num_waiting
    return {
        "active": running + waiting,
        "max": engine.limits.max_rows,
        "scheduled": running,
        "context": context.size,
        "waiting": waiting,
    }


def _context_rows(engine: ServedEngine) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Tokens that each running row still has to run before it decodes; rows that decode are left out."""
    table = engine.core.scheduler.table
    slots = [sequence.slot for sequence in list(engine.core.scheduler.running) if sequence.slot >= 0]
    needed = table.known[slots] - table.context[slots]
    found: np.ndarray[Any, np.dtype[np.int64]] = needed[needed > 1]
    return found


def _memory(engine: ServedEngine) -> Values:
    memory, on_cpu = engine.memory, engine.folder.manifest.backend == "onnxruntime"
    total = memory.weights + memory.pages
    return {"cpu": total if on_cpu else 0, "gpu": 0 if on_cpu else total, "pinned": 0}


def _pages(engine: ServedEngine) -> Values:
    pages = engine.core.scheduler.allocator
    most = pages.num_pages - 1
    size = engine.limits.page_size
    return {
        "max": most,
        "free": pages.available,
        "used": pages.in_use,
        "tokens_per": size,
        "reused": engine.core.stats.cached_tokens // size,
        "fraction": pages.in_use / most,
    }


def _batcher(engine: ServedEngine) -> Values:
    scheduler, context = engine.core.scheduler, _context_rows(engine)
    return {
        "total_context_tokens": int(context.sum()),
        "generation_requests": len(scheduler.running) - context.size,
        "micro_batch_id": 0,
        "paused_requests": sum(one.preemptions > 0 for one in scheduler.waiting()),
    }


def _general(engine: ServedEngine) -> Values:
    return {"timestamp": time.time(), "iteration_counter": engine.core.stats.steps}


def _steps(engine: ServedEngine) -> Values:
    stats = engine.core.stats
    return {"ok": stats.steps, "failed": stats.failed_steps}


def _tokens(engine: ServedEngine) -> Values:
    stats = engine.core.stats
    return {"prompt": stats.prompt_tokens, "cached": stats.cached_tokens, "new": stats.new_tokens}


def _drafts(engine: ServedEngine) -> Values:
    drafts = engine.core.stats.drafts
    return {"verified": drafts.drafted, "accepted": drafts.num_accepted}


_GAUGES: Final = (
    _Family("nv_trt_llm_request_metrics", "GAUGE", "request_type", "Requests by state", _requests),
    _Family("nv_trt_llm_runtime_memory_metrics", "GAUGE", "memory_type", "Bytes of weights and pages", _memory),
    _Family("nv_trt_llm_kv_cache_block_metrics", "GAUGE", "kv_cache_block_type", "KV cache pages", _pages),
    _Family(
        "nv_trt_llm_inflight_batcher_metrics",
        "GAUGE",
        "inflight_batcher_specific_metric",
        "Rows of the running batch",
        _batcher,
    ),
    _Family("nv_trt_llm_general_metrics", "GAUGE", "general_type", "Time and steps", _general),
    _Family(
        "hspec_mean_accepted_length",
        "GAUGE",
        "",
        "Mean tokens of a decode step over all ended answers",
        lambda engine: {"": engine.core.stats.drafts.accepted_length},
    ),
    _Family(
        "hspec_engine_ready",
        "GAUGE",
        "",
        "1 while the engine can serve",
        lambda engine: {"": float(engine.failure is None)},
    ),
)
_COUNTERS: Final = (
    _Family(
        "hspec_decode_steps",
        "COUNTER",
        "accepted_length",
        "Decode steps of ended answers, by tokens that they kept",
        lambda engine: {str(length): count for length, count in list(engine.core.stats.drafts.lengths.items())},
    ),
    _Family("hspec_draft_tokens", "COUNTER", "kind", "Drafts of ended answers", _drafts),
    _Family("hspec_tokens", "COUNTER", "kind", "Tokens run, saved by the prefix cache, and emitted", _tokens),
    _Family("hspec_engine_steps", "COUNTER", "outcome", "Steps of the engine", _steps),
    _Family(
        "hspec_engine_step_seconds",
        "COUNTER",
        "",
        "Seconds inside steps",
        lambda engine: {"": engine.core.stats.step_seconds},
    ),
    _Family(
        "hspec_answers",
        "COUNTER",
        "finish_reason",
        "Ended answers",
        lambda engine: {str(reason): count for reason, count in list(engine.core.stats.finished.items())},
    ),
    _Family(
        "hspec_preemptions",
        "COUNTER",
        "",
        "Times an answer lost its pages and was computed again (ended answers)",
        lambda engine: {"": engine.core.stats.preemptions},
    ),
)


@dataclass(frozen=True)
class _Histogram:
    name: str
    label: tuple[str, str]
    description: str
    buckets: list[float]
    read: Callable[[Ending], float | None]


def _first_token_seconds(ending: Ending) -> float | None:
    return ending.first_token - ending.arrived if ending.first_token else None


def _token_seconds(ending: Ending) -> float | None:
    rest = ending.num_output_tokens - 1
    return (ending.last_token - ending.first_token) / rest if ending.first_token and rest > 0 else None


_HISTOGRAMS: Final = (
    _Histogram(
        "nv_llm_input_token_len",
        ("response_metric_type", "total_input_tokens"),
        "Prompt tokens of a request",
        [float(bound) for bound in _TOKEN_BUCKETS],
        lambda ending: ending.num_input_tokens,
    ),
    _Histogram(
        "nv_llm_output_token_len",
        ("response_metric_type", "total_output_tokens"),
        "New tokens of a request",
        [float(bound) for bound in _TOKEN_BUCKETS],
        lambda ending: ending.num_output_tokens,
    ),
    _Histogram(
        "hspec_time_to_first_token_seconds",
        ("", ""),
        "From a request's arrival to its first token",
        _SECOND_BUCKETS,
        _first_token_seconds,
    ),
    _Histogram(
        "hspec_time_per_output_token_seconds",
        ("", ""),
        "Mean time of a token after the first",
        _SECOND_BUCKETS,
        _token_seconds,
    ),
)


METRIC_NAMES: Final = tuple(one.name for one in (*_GAUGES, *_COUNTERS, *_HISTOGRAMS))
"""Names of all families."""


class Metrics:
    """All metrics of one instance. `update` and `observe` are called by one thread each."""

    def __init__(self, backend: Backend, args: ModelArgs, engine: ServedEngine) -> None:
        self._engine = engine
        self._labels = {"model": args.name, "version": args.version, "instance": str(args.instance)}
        tables = (*_GAUGES, *_COUNTERS)
        self._families = {one.name: backend.family(one.name, one.kind, one.description) for one in tables}
        self._series: dict[tuple[str, str], Metric] = {}
        self._last: dict[tuple[str, str], float] = {}
        self._histogram_families = [backend.family(one.name, "HISTOGRAM", one.description) for one in _HISTOGRAMS]
        self._histograms: list[Metric] = [
            family.Metric(labels=self._with(*one.label), buckets=one.buckets)
            for one, family in zip(_HISTOGRAMS, self._histogram_families, strict=True)
        ]
        self.update()

    def update(self) -> None:
        """Bring gauges and counters up to date."""
        for family in _GAUGES:
            for value, figure in family.read(self._engine).items():
                if self._last.get((family.name, value)) != figure:
                    self._find(family, value).set(figure)
                    self._last[family.name, value] = figure
        for family in _COUNTERS:
            for value, figure in family.read(self._engine).items():
                added = figure - self._last.get((family.name, value), 0.0)
                metric = self._find(family, value)
                if added > 0:
                    metric.increment(added)
                    self._last[family.name, value] = figure

    def observe(self, ending: Ending) -> None:
        """Count one ended answer."""
        for histogram, metric in zip(_HISTOGRAMS, self._histograms, strict=True):
            figure = histogram.read(ending)
            if figure is not None:
                metric.observe(figure)

    def close(self) -> None:
        """Take the series off the metrics port; series go before their families."""
        self.update()
        self._series.clear()
        self._histograms.clear()
        self._families.clear()
        self._histogram_families.clear()

    def _with(self, label: str, value: str) -> dict[str, str]:
        return {**self._labels, label: value} if label else self._labels

    def _find(self, family: _Family, value: str) -> Metric:
        found = self._series.get((family.name, value))
        if found is None:
            found = self._families[family.name].Metric(labels=self._with(family.label, value))
            self._series[family.name, value] = found
        return found
