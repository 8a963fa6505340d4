# SPDX-License-Identifier: Apache-2.0
"""The outputs of the served models, under the names of TensorRT-LLM's Triton models, and how pieces become arrays.

An output is sent when its flag asks for it, or when the client asks for it by name. Those of an answer's figures come
with the answer's end. It does not know how tensors are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from hspec_trt.runtime.stop import FinishReason
from hspec_trt.serving.triton.requests import ResponseOptions
from hspec_trt.serving.triton.results import Ending, Piece
from hspec_trt.serving.triton.tensors import ANY, NUMPY_TYPES, Array, Tensor, TritonType

FINISH_REASONS: Final[dict[FinishReason, str]] = {
    "eos": "stop",
    "stop_token": "stop",
    "stop_string": "stop",
    "length": "length",
    "cancelled": "cancelled",
    "error": "error",
}
"""Ours to the llmapi model's."""


class When(Enum):
    """When an output is sent without being asked for by name."""

    ALWAYS = "always"
    ENDED = "with an ending"
    LOG_PROBS = "log_probs"
    PERF_METRICS = "perf_metrics"
    NUM_INPUT_TOKENS = "num_input_tokens"
    NUM_OUTPUT_TOKENS = "num_output_tokens"
    TOKEN_IDS = "token_ids"


Item = bytes | int | float | Sequence[int] | Sequence[float]


@dataclass(frozen=True)
class Output:
    """One output of a served model.

    Attributes:
        read: its value for one piece; a sequence where it has one for each token.
        flat: one line over all answers, without a batch dimension (what clients expect of text).
    """

    tensor: Tensor
    when: When
    read: Callable[[Piece], Item]
    flat: bool = False


def _figure(name: str, dtype: TritonType, when: When, read: Callable[[Ending], Item], dims: int = 1) -> Output:
    return Output(Tensor(name, dtype, (dims,)), when, lambda piece: read(piece.figures))


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def _word(name: str, read: Callable[[Ending], str]) -> Output:
    return Output(
        Tensor(name, "STRING", (ANY,)),
        When.ENDED,
        lambda piece: read(piece.ending).encode() if piece.ending else b"",
        flat=True,
    )


_TEXT: Final = Output(
    Tensor("text_output", "STRING", (ANY,)), When.ALWAYS, lambda piece: piece.shown_text.encode(), flat=True
)
_INDEXES: Final = (
    Output(Tensor("batch_index", "INT32", (1,)), When.ALWAYS, lambda piece: piece.batch_index),
    Output(Tensor("sequence_index", "INT32", (1,)), When.ALWAYS, lambda piece: piece.sequence_index),
)
_LOG_PROBS: Final = (
    Output(Tensor("cum_log_probs", "FP32", (ANY,)), When.LOG_PROBS, lambda piece: sum(piece.logprobs)),
    Output(Tensor("output_log_probs", "FP32", (ANY, ANY)), When.LOG_PROBS, lambda piece: piece.logprobs),
)
_FIGURES: Final = (
    _figure("kv_cache_alloc_new_blocks", "INT32", When.PERF_METRICS, lambda end: end.total_pages - end.reused_pages),
    _figure("kv_cache_reused_blocks", "INT32", When.PERF_METRICS, lambda end: end.reused_pages),
    _figure("kv_cache_alloc_total_blocks", "INT32", When.PERF_METRICS, lambda end: end.total_pages),
    _figure("arrival_time_ns", "INT64", When.PERF_METRICS, lambda end: _ns(end.arrived)),
    _figure("first_scheduled_time_ns", "INT64", When.PERF_METRICS, lambda end: _ns(end.scheduled)),
    _figure("first_token_time_ns", "INT64", When.PERF_METRICS, lambda end: _ns(end.first_token)),
    _figure("last_token_time_ns", "INT64", When.PERF_METRICS, lambda end: _ns(end.last_token)),
    _figure("acceptance_rate", "FP32", When.PERF_METRICS, lambda end: end.acceptance_rate),
    _figure("total_accepted_draft_tokens", "INT32", When.PERF_METRICS, lambda end: end.accepted),
    _figure("total_draft_tokens", "INT32", When.PERF_METRICS, lambda end: end.drafted),
    _figure("accepted_length", "FP32", When.PERF_METRICS, lambda end: end.accepted_length),
    _figure("num_input_tokens", "INT32", When.NUM_INPUT_TOKENS, lambda end: end.num_input_tokens),
    _figure("num_output_tokens", "INT32", When.NUM_OUTPUT_TOKENS, lambda end: end.num_output_tokens),
)
_FINISH: Final = (
    _word("finish_reason", lambda end: FINISH_REASONS[end.reason]),
    _word("stop_reason", lambda end: end.stop),
)
_TOKEN_IDS: Final = Output(Tensor("output_ids", "INT32", (ANY, ANY)), When.TOKEN_IDS, lambda piece: piece.shown_ids)

TEXT_OUTPUTS: Final = (
    _TEXT,
    *_FINISH,
    *_INDEXES,
    *_LOG_PROBS,
    Output(Tensor("cumulative_logprob", "FP32", (ANY,)), When.LOG_PROBS, lambda piece: sum(piece.logprobs), flat=True),
    *_FIGURES,
    _TOKEN_IDS,
)
"""Outputs of the model `hspec`."""

ENSEMBLE_OUTPUTS: Final = (_TEXT, *_FINISH, *_INDEXES, *_LOG_PROBS, *_FIGURES)
"""Outputs of the model `ensemble`."""

TOKEN_OUTPUTS: Final = (
    Output(_TOKEN_IDS.tensor, When.ALWAYS, _TOKEN_IDS.read),
    Output(Tensor("sequence_length", "INT32", (ANY,)), When.ALWAYS, lambda piece: len(piece.shown_ids)),
    *_INDEXES,
    *_LOG_PROBS,
    *_FIGURES,
    *_FINISH,
    # The exact text of the chunk: ids alone cannot say where a stop string cut it, or complete a split character.
    Output(Tensor("output_text", "STRING", (ANY,)), When.ALWAYS, lambda piece: piece.shown_text.encode()),
)
"""Outputs of the model `tensorrt_llm`; those after `_FIGURES` are additions to TensorRT-LLM's names."""


@dataclass(frozen=True)
class Writing:
    """How a model writes its responses.

    Attributes:
        outputs: all outputs.
        batched: arrays have a batch dimension before their own.
        complete: every response has all outputs, or all that are asked for by name: an ensemble waits for each.
    """

    outputs: tuple[Output, ...]
    batched: bool
    complete: bool = False


def write_response(
    pieces: Sequence[Piece], options: ResponseOptions, named: frozenset[str], writing: Writing
) -> list[tuple[Tensor, Array]]:
    """The tensors of one response.

    Args:
        pieces: one, or one for each answer of a request: prompt after prompt, with the same number of answers each.
        named: outputs that the client asks for by name; empty takes what `options` ask for.

    Returns:
        Tensor and array, whose shape for ``b`` prompts of ``n`` answers and ``T`` tokens is, by the tensor's dims,
        ``[b * n, 1]`` for (1), ``[b, n]`` for (ANY), ``[b, n, T]`` for (ANY, ANY), and ``[b * n]`` where flat; without
        batch dimension ``[n]``, ``[n]`` and ``[n, T]``.
    """
    ended = any(piece.ending is not None for piece in pieces)
    if writing.complete:
        chosen = [one for one in writing.outputs if not named or one.tensor.name in named]
    else:
        chosen = [one for one in writing.outputs if _wanted(one, options, named, ended)]
    rows = len({piece.batch_index for piece in pieces})
    return [(one.tensor, _array(one, pieces, rows, writing.batched)) for one in chosen]


def _wanted(output: Output, options: ResponseOptions, named: frozenset[str], ended: bool) -> bool:
    asked = output.when in (When.ALWAYS, When.ENDED)
    if named:
        asked = output.tensor.name in named
    elif not asked:
        asked = bool(vars(options)[output.when.value])
    needs_end = output.when is When.ENDED or output in _FIGURES
    return asked and (ended or not needs_end)


def _array(output: Output, pieces: Sequence[Piece], rows: int, batched: bool) -> Array:
    tensor, items = output.tensor, [output.read(piece) for piece in pieces]
    if tensor.dims == (ANY, ANY):
        array = _padded(items, tensor)
        return array.reshape(rows, len(items) // rows, array.shape[1]) if batched else array
    array = tensor.array(items)
    if output.flat or not batched:
        return array
    return array.reshape(-1, 1) if tensor.dims == (1,) else array.reshape(rows, -1)


def _padded(items: Sequence[Item], tensor: Tensor) -> Array:
    lines = [np.array(item, NUMPY_TYPES[tensor.dtype]).reshape(-1) for item in items]
    width = max(line.size for line in lines)
    return np.stack([np.pad(line, (0, width - line.size)) for line in lines])
