# SPDX-License-Identifier: Apache-2.0
"""An engine for graph tests: weights and graph in a folder, ONNX Runtime on it, and a plain loop over packed steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from hspec_trt import dtypes
from hspec_trt.bundle import plan_weights, write_weights
from hspec_trt.checkpoint.tensors import TensorSource
from hspec_trt.config.build import BuildConfig
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.contract import kv_pages, kv_pages_out
from hspec_trt.graph.step import build_step, drafts_per_step
from hspec_trt.graph.weights import engine_weights


@dataclass(frozen=True)
class ArraySource:
    """A checkpoint's tensor that is already in memory."""

    values: np.ndarray

    @property
    def dtype(self) -> dtypes.DType:
        return dtypes.BY_NUMPY[self.values.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def read(self) -> np.ndarray:
        return self.values

    def read_row(self, index: int) -> np.ndarray:
        return self.values[index]


@dataclass(frozen=True)
class Pair:
    """A target and perhaps a drafter, with their tensors."""

    target: TargetConfig
    target_tensors: Mapping[str, TensorSource]
    drafter: DrafterConfig | None = None
    drafter_tensors: Mapping[str, TensorSource] | None = None

    def without_drafter(self) -> Pair:
        return Pair(self.target, self.target_tensors)


def write_engine(folder: Path, pair: Pair, build: BuildConfig, **options: bool) -> Path:
    """Weights and graph of an engine; returns the graph's path."""
    sources = engine_weights(
        pair.target_tensors,
        pair.drafter_tensors,
        pair.target,
        pair.drafter,
        dtypes.BY_NAME[build.dtype],
        confidence=build.draft_confidence,
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder / "weights.safetensors", sources)
    model = build_step(pair.target, pair.drafter, build, plan_weights(sources), **options)
    ir.save(model, folder / "graph.onnx")
    return folder / "graph.onnx"


@dataclass
class Row:
    """One request: its committed tokens, what it still has to run, and the drafts it carries."""

    prompt: list[int]
    pages: list[int]
    context: int = 0
    tokens: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    temperature: float = 0.0
    top_p: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    seed: int = 0

    @property
    def text(self) -> list[int]:
        return self.prompt + self.tokens

    def following(self, feed: Feed) -> int:
        """The token after those that the row runs now, where it is known."""
        end = self.context + len(feed.tokens)
        return self.text[end] if end < len(self.text) else 0


@dataclass(frozen=True)
class Feed:
    """What one row runs in one step: tokens, how many of the last ones are verified, and whether to draft."""

    tokens: Sequence[int]
    num_verify: int = 0
    draft: bool = False


class Engine:
    """ONNX Runtime on an emitted graph, pages bound in place."""

    def __init__(
        self, graph: Path, pair: Pair, build: BuildConfig, *, num_pages: int, prepack: bool = True, threads: int = 1
    ) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if not prepack:
            options.add_session_config_entry("session.disable_prepacking", "1")
        self.session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        self.pair, self.build = pair, build
        self.num_drafts = drafts_per_step(pair.drafter, build)
        paged = dtypes.BY_NAME[build.dtype].numpy
        shape = (num_pages, 2, pair.target.num_kv_heads, build.page_size, pair.target.head_dim)
        self.pages = [ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, paged)) for _ in range(pair.target.num_layers)]
        self.bound = [(kv_pages(layer), kv_pages_out(layer)) for layer in range(pair.target.num_layers)]
        if pair.drafter is not None:
            shape = (num_pages, 2, pair.drafter.num_kv_heads, build.page_size, pair.drafter.head_dim)
            for layer in range(pair.drafter.num_cache_layers):
                self.pages.append(ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, paged)))
                self.bound.append((kv_pages(layer, drafter=True), kv_pages_out(layer, drafter=True)))
        self.accepted = {value.name for value in self.session.get_inputs()}
        self.outputs = [output.name for output in self.session.get_outputs()]

    def step(
        self, rows: Sequence[Row], feeds: Sequence[Feed], *, pad: Mapping[str, int] | None = None
    ) -> dict[str, np.ndarray]:
        """Run one step and return the outputs but the pages; `pad` gives least sizes of N, T, K and M."""
        inputs = step_inputs(rows, feeds, self.build.page_size, pad or {})
        return self.run(inputs)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        binding = self.session.io_binding()
        for name, values in inputs.items():
            if name not in self.accepted:
                continue
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(values)))
        for (spec, out), pages in zip(self.bound, self.pages, strict=True):
            binding.bind_ortvalue_input(spec.name, pages)
            binding.bind_ortvalue_output(out.name, pages)
        paged = {out.name for _, out in self.bound}
        wanted = [name for name in self.outputs if name not in paged]
        for name in wanted:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        results = binding.get_outputs()[len(self.pages) :]
        return {name: value.numpy() for name, value in zip(wanted, results, strict=True)}

    def page_values(self, layer: int, *, drafter: bool = False) -> np.ndarray:
        return self.pages[layer + (self.pair.target.num_layers if drafter else 0)].numpy()


def _cumulative(lens: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lens)]).astype(np.int32)


def step_inputs(
    rows: Sequence[Row], feeds: Sequence[Feed], page_size: int, pad: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """The contract's inputs for one step."""
    lens = [len(feed.tokens) for feed in feeds]
    cu_query, cu_verify = _cumulative(lens), _cumulative([feed.num_verify for feed in feeds])
    packed = [token for feed in feeds for token in feed.tokens]
    packed += [0] * (max(1, pad.get("N", 1)) - len(packed))
    verify = [cu_query[r + 1] - feed.num_verify + i for r, feed in enumerate(feeds) for i in range(feed.num_verify)]
    verify += [0] * (max(1, pad.get("K", 1)) - len(verify))
    longest = max(1, pad.get("T", 1), *lens)
    slots = np.zeros((len(rows), longest), np.int32)
    for r, length in enumerate(lens):
        slots[r, :length] = np.arange(cu_query[r], cu_query[r] + length)
    num_pages = max(
        1, pad.get("M", 1), *(-(-(row.context + n) // page_size) for row, n in zip(rows, lens, strict=True))
    )
    table = np.zeros((len(rows), num_pages), np.int32)
    for r, row in enumerate(rows):
        used = row.pages[:num_pages]
        table[r, : len(used)] = used
    return {
        "input_ids": np.array(packed, np.int32),
        "cu_query_lens": cu_query,
        "context_lens": np.array([row.context for row in rows], np.int32),
        "query_slots": slots,
        "verify_rows": np.array(verify, np.int32),
        "cu_verify_lens": cu_verify,
        "draft_rows": np.array([r for r, feed in enumerate(feeds) if feed.draft], np.int32),
        "page_table": table,
        **{
            name: np.array([getattr(row, name) for row in rows], np.float32)
            for name in ("temperature", "top_p", "min_p")
        },
        "next_ids": np.array([row.following(feed) for row, feed in zip(rows, feeds, strict=True)], np.int32),
        "top_k": np.array([row.top_k for row in rows], np.int32),
        "seed": np.array([row.seed for row in rows], np.int64),
    }


def next_feed(row: Row, *, chunk: int, draft: bool, num_drafts: int) -> Feed:
    """The next prompt chunk, or the last token with the drafts that the row carries."""
    left = len(row.prompt) - row.context
    if left > 0:
        tokens = row.prompt[row.context : row.context + chunk]
        last = len(tokens) == left
        return Feed(tokens, num_verify=int(last), draft=draft and last)
    drafts = row.drafts[:num_drafts]
    return Feed([row.tokens[-1], *drafts], num_verify=1 + len(drafts), draft=draft)


def commit(rows: Sequence[Row], feeds: Sequence[Feed], out: Mapping[str, np.ndarray]) -> None:
    """Take the emitted tokens and the new drafts into the rows."""
    drafted = [r for r, feed in enumerate(feeds) if feed.draft]
    for r, (row, feed) in enumerate(zip(rows, feeds, strict=True)):
        count = int(out["emitted_lens"][r])
        row.context += len(feed.tokens) - feed.num_verify + count
        row.tokens += [int(token) for token in out["emitted_ids"][r, :count]]
        row.drafts = [int(token) for token in out["draft_ids"][drafted.index(r)]] if feed.draft else []


def with_options(build: BuildConfig, **changes: object) -> BuildConfig:
    return replace(build, **changes)
