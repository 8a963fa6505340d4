# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics: vLLM's names (which TensorRT-LLM's server follows) where one exists, under a prefix of ours.

Figures of the step loop are read when somebody scrapes; histograms of whole answers are filled as answers end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from hspec_trt import __version__
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.histogram import SECONDS, TOKENS
from hspec_trt.runtime.histogram import Histogram as RuntimeHistogram
from hspec_trt.runtime.results import CompletionOutput

Figures = Mapping[str, float]


@dataclass(frozen=True)
class _Family:
    """A gauge or counter and where its figures come from; `label` is empty where it has one series."""

    name: str
    text: str
    read: Callable[[EngineCore], float | Figures]
    label: str = ""


def _page_share(core: EngineCore) -> float:
    pages = core.scheduler.allocator
    return pages.in_use / (pages.num_pages - 1)


def _pages(core: EngineCore) -> Figures:
    pages = core.scheduler.allocator
    return {"used": pages.in_use, "free": pages.available, "total": pages.num_pages - 1}


def _finished(core: EngineCore) -> Figures:
    return {str(reason): count for reason, count in dict(core.stats.finished).items()}


def _per_position(core: EngineCore) -> Figures:
    return {str(place): count for place, count in enumerate(list(core.stats.drafts.accepted))}


def _without(core: EngineCore) -> Figures:
    return {str(reason): count for reason, count in dict(core.stats.drafts.without).items()}


_GAUGES: Final = (
    _Family("num_requests_running", "Answers that have a row.", lambda core: len(core.scheduler.running)),
    _Family("num_requests_waiting", "Answers that wait for a row.", lambda core: core.scheduler.num_waiting),
    _Family("kv_cache_usage_perc", "Share of the KV pages in use, 0 to 1.", _page_share),
    _Family("kv_cache_pages", "KV pages.", _pages, "state"),
    _Family(
        "mean_accepted_length", "Mean tokens of a decode step, over ended answers.",
        lambda core: core.stats.drafts.accepted_length,
    ),
)  # fmt: skip
_COUNTERS: Final = (
    _Family("prompt_tokens", "Prompt tokens that were run.", lambda core: core.stats.prompt_tokens),
    _Family("generation_tokens", "New tokens.", lambda core: core.stats.new_tokens),
    _Family("prefix_cache_hits", "Prompt tokens that the prefix cache saved (ended answers).",
            lambda core: core.stats.cached_tokens),
    _Family("num_preemptions", "Answers that lost their pages and were computed again (ended answers).",
            lambda core: core.stats.preemptions),
    _Family("request_success", "Ended answers.", _finished, "finished_reason"),
    _Family("spec_decode_num_drafts", "Decode steps of ended answers.", lambda core: core.stats.drafts.steps),
    _Family("spec_decode_num_draft_tokens", "Drafts that were verified (ended answers).",
            lambda core: core.stats.drafts.drafted),
    _Family("spec_decode_num_accepted_tokens", "Drafts that were accepted (ended answers).",
            lambda core: core.stats.drafts.num_accepted),
    _Family("spec_decode_num_accepted_tokens_per_pos", "Accepted drafts by position, from 0 (ended answers).",
            _per_position, "position"),
    _Family("steps_without_drafts", "Decode steps that carried no draft, by reason (ended answers).",
            _without, "reason"),
    _Family("engine_steps", "Steps of the engine.",
            lambda core: {"ok": core.stats.steps, "failed": core.stats.failed_steps}, "outcome"),
    _Family("engine_step_seconds", "Seconds inside steps.", lambda core: core.stats.step_seconds),
)  # fmt: skip
_HISTOGRAMS: Final[tuple[tuple[str, str, Callable[[EngineCore], RuntimeHistogram]], ...]] = (
    ("iteration_tokens_total", "Tokens of a step.", lambda core: core.stats.step_tokens),
    ("time_to_first_token_seconds", "From arrival to the first token.", lambda core: core.stats.first_token),
    (
        "inter_token_latency_seconds",
        "Between two steps that gave an answer tokens.",
        lambda core: core.stats.inter_token,
    ),
)
_BY_LENGTH: Final = ("steps", "emitted", "drafted", "accepted")


@dataclass(frozen=True)
class _AnswerHistogram:
    name: str
    text: str
    bounds: tuple[float, ...]
    read: Callable[[CompletionOutput, int], float | None]


def _span(answer: CompletionOutput, first: str, last: str) -> float | None:
    """Seconds between two points of an answer's life; None where one was not reached."""
    begin, end = getattr(answer.timing, first), getattr(answer.timing, last)
    return end - begin if begin and end else None


def _per_token(answer: CompletionOutput) -> float | None:
    seconds = _span(answer, "first_token", "finished")
    return seconds / (answer.length - 1) if seconds is not None and answer.length > 1 else None


_OF_ANSWERS: Final = (
    _AnswerHistogram("e2e_request_latency_seconds", "From arrival to the end.", SECONDS,
                     lambda answer, _: _span(answer, "arrived", "finished")),
    _AnswerHistogram("request_queue_time_seconds", "From arrival to a row.", SECONDS,
                     lambda answer, _: _span(answer, "arrived", "scheduled")),
    _AnswerHistogram("request_prefill_time_seconds", "From a row to the first token.", SECONDS,
                     lambda answer, _: _span(answer, "scheduled", "first_token")),
    _AnswerHistogram("request_decode_time_seconds", "From the first token to the end.", SECONDS,
                     lambda answer, _: _span(answer, "first_token", "finished")),
    _AnswerHistogram("request_time_per_output_token_seconds", "Mean time of a token after the first.", SECONDS,
                     lambda answer, _: _per_token(answer)),
    _AnswerHistogram("request_prompt_tokens", "Prompt tokens of an answer.", TOKENS, lambda _, prompt_len: prompt_len),
    _AnswerHistogram("request_generation_tokens", "New tokens of an answer.", TOKENS, lambda answer, _: answer.length),
)  # fmt: skip


class Metrics:
    """All metrics of one server.

    Args:
        prefix: before every name; with ``vllm:`` the names are vLLM's.
    """

    def __init__(self, core: EngineCore, model: str, prefix: str) -> None:
        self._registry = CollectorRegistry()
        labels = {"model_name": model}
        self._registry.register(_CoreCollector(core, prefix, labels))
        self._of_answers = [
            Histogram(prefix + one.name, one.text, list(labels), registry=self._registry, buckets=one.bounds).labels(
                **labels
            )
            for one in _OF_ANSWERS
        ]
        self._replies = Counter(
            prefix + "http_requests", "HTTP replies.", ["handler", "status"], registry=self._registry
        )

    def observe(self, answer: CompletionOutput, prompt_len: int) -> None:
        """Count an answer that ended."""
        for spec, histogram in zip(_OF_ANSWERS, self._of_answers, strict=True):
            figure = spec.read(answer, prompt_len)
            if figure is not None:
                histogram.observe(figure)

    def count_reply(self, handler: str, status: int) -> None:
        """Count a reply."""
        self._replies.labels(handler, str(status)).inc()

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _CoreCollector(Collector):
    def __init__(self, core: EngineCore, prefix: str, labels: Mapping[str, str]) -> None:
        self._core, self._prefix = core, prefix
        self._names, self._values = list(labels), list(labels.values())

    def collect(self) -> Iterator[Metric]:
        """Read everything once."""
        for family in _GAUGES:
            names = [*self._names, *([family.label] if family.label else [])]
            gauge = GaugeMetricFamily(self._prefix + family.name, family.text, labels=names)
            for values, figure in self._series(family):
                gauge.add_metric(values, figure)
            yield gauge
        for family in _COUNTERS:
            names = [*self._names, *([family.label] if family.label else [])]
            counter = CounterMetricFamily(self._prefix + family.name, family.text, labels=names)
            for values, figure in self._series(family):
                counter.add_metric(values, figure)
            yield counter
        for name, text, read in _HISTOGRAMS:
            histogram = read(self._core)
            yield self._histogram(name, text, histogram.bounds, histogram.cumulative(), histogram.total)
        yield self._accepted_lengths()
        yield from self._by_length()
        info = InfoMetricFamily(self._prefix + "build", "What serves.")
        info.add_metric([], {"version": __version__, **dict(zip(self._names, self._values, strict=True))})
        yield info

    def _series(self, family: _Family) -> Iterator[tuple[list[str], float]]:
        figures = family.read(self._core)
        for value, figure in ({"": figures} if isinstance(figures, (int, float)) else figures).items():
            yield [*self._values, *([value] if family.label else [])], figure

    def _accepted_lengths(self) -> Metric:
        drafts = self._core.stats.drafts
        bounds = range(1, self._core.session.limits.num_drafts + 2)
        lengths, counts, seen = dict(drafts.lengths), [], 0
        for bound in bounds:
            seen += lengths.get(bound, 0)
            counts.append(seen)
        text = "Tokens of a decode step, the bonus token included (ended answers)."
        return self._histogram("spec_decode_accepted_length", text, tuple(bounds), [*counts, seen], drafts.emitted)

    def _by_length(self) -> Iterator[Metric]:
        """Drafting by the tokens that a text had when the step began."""
        by_length = self._core.stats.by_length
        names = [*self._names, "context_length"]
        bounds = [*(str(bound) for bound in by_length.bounds), "+Inf"]
        for name in _BY_LENGTH:
            text = f"Decode steps by length of the text: {name}."
            counter = CounterMetricFamily(f"{self._prefix}drafting_by_context_{name}", text, labels=names)
            for bound, figure in zip(bounds, getattr(by_length, name).tolist(), strict=True):
                if figure:
                    counter.add_metric([*self._values, bound], figure)
            yield counter

    def _histogram(self, name: str, text: str, bounds: tuple[float, ...], counts: list[int], total: float) -> Metric:
        family = HistogramMetricFamily(self._prefix + name, text, labels=self._names)
        ends = [*(str(float(bound)) for bound in bounds), "+Inf"]
        family.add_metric(self._values, list(zip(ends, counts, strict=True)), total)
        return family
