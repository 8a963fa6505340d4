# SPDX-License-Identifier: Apache-2.0
"""From the input tensors of one Triton request to prompts, sampling options and what is wanted back. Pure functions.

Where this differs from `SamplingParams`, it follows TensorRT-LLM's Triton models: ``top_p`` 0 is off, ``top_k`` 0 and
``top_p`` 0 sent together are greedy, and ``end_id`` -1 means that no end token ends the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from hspec_trt.config.sampling import GuidedDecodingParams, SamplingParams
from hspec_trt.errors import Faults, RequestError
from hspec_trt.runtime.chat import Message
from hspec_trt.serving.triton import values
from hspec_trt.serving.triton.inputs import Input, Use
from hspec_trt.serving.triton.tensors import Array

_NO_END: Final = -1
_ANY_JSON: Final = "json"
_GUIDES: Final[dict[str, Callable[[str], GuidedDecodingParams]]] = {
    _ANY_JSON: lambda _: GuidedDecodingParams(json_object=True),
    "json_schema": lambda guide: GuidedDecodingParams(json=guide),
    "regex": lambda guide: GuidedDecodingParams(regex=guide),
    "ebnf_grammar": lambda guide: GuidedDecodingParams(grammar=guide),
}
"""TensorRT-LLM's types of guides."""
Encode = Callable[[str], Sequence[int]]
"""Text to token ids, without a begin token."""
DecodeWord = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class ResponseOptions:
    """What a request wants back, and how.

    Attributes:
        stream: one response for each piece of text.
        stop: not a request of its own: ends the running request with the same id.
        exclude_input: leave the prompt out of the output; None takes the model's setting.
        log_probs, perf_metrics, num_input_tokens, num_output_tokens, token_ids: further outputs.
    """

    stream: bool = False
    stop: bool = False
    exclude_input: bool | None = None
    log_probs: bool = False
    perf_metrics: bool = False
    num_input_tokens: bool = False
    num_output_tokens: bool = False
    token_ids: bool = False


@dataclass(frozen=True)
class Ask:
    """One prompt of a request, and how to sample.

    Attributes:
        text, token_ids, messages: the prompt is one of them; `tools` go with messages.
    """

    text: str | None
    token_ids: tuple[int, ...]
    params: SamplingParams
    response: ResponseOptions
    messages: tuple[Message, ...] = ()
    tools: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Reading:
    """How a model reads its requests.

    Attributes:
        inputs: all inputs, the prompt's first.
        batched: tensors have a batch dimension before their own.
        encode, decode_word: of the engine's tokenizer; None where it has none.
    """

    inputs: tuple[Input, ...]
    batched: bool
    encode: Encode | None = None
    decode_word: DecodeWord | None = None


def read_request(arrays: Mapping[str, Array], reading: Reading) -> tuple[Ask, ...]:
    """The prompts of a request, in order.

    Args:
        arrays: input tensors by name, those that were sent.

    Raises:
        RequestError: R210 an option that cannot be served, R421 two names for one option disagree, R422 a tensor of
            the wrong size, R423 not UTF-8 or not JSON, R424 prompts that want different kinds of response; a
            `FaultGroup` of them.
    """
    count = _num_prompts(arrays) if reading.batched else 1
    asks = []
    for index in range(count):
        lines = {name: array[index] if reading.batched else array for name, array in arrays.items()}
        asks.append(_read_prompt(lines, reading))
    if any(ask.response != asks[0].response for ask in asks):
        raise RequestError("R424", "the prompts of one request want different kinds of response", needed="one kind")
    return tuple(asks)


def _num_prompts(arrays: Mapping[str, Array]) -> int:
    counts = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if not counts or min(counts.values()) != max(counts.values()) or not min(counts.values()):
        raise RequestError("R422", f"the inputs hold prompts: {counts}", needed="the same number, at least one")
    return next(iter(counts.values()))


def _read_prompt(lines: Mapping[str, Array], reading: Reading) -> Ask:
    faults = Faults()
    sampling: dict[str, Any] = {}
    response: dict[str, Any] = {}
    for spec in reading.inputs:
        line = lines.get(spec.tensor.name)
        if line is None:
            continue
        with faults.collect():
            if spec.use is Use.REFUSED:
                values.refuse_unless_neutral(spec, line)
            elif spec.use is Use.SAMPLING:
                _set(sampling, spec, _read_value(spec, line))
            elif spec.use is Use.RESPONSE:
                _set(response, spec, _read_value(spec, line))
    ask = Ask(None, (), SamplingParams(), ResponseOptions())
    for apply in (_apply_end_id, _apply_words, _apply_bias, _apply_guide):
        with faults.collect():
            apply(sampling, lines, reading)
    with faults.collect():
        params, options = SamplingParams(**_as_here(sampling)), ResponseOptions(**response)
        ask = _read_prompt_itself(lines, params, options)
    faults.raise_any()
    return ask


_TUPLE_FIELDS: Final = frozenset(
    field.name for field in fields(SamplingParams) if isinstance(field.default, tuple) and field.name != "logit_bias"
)


def _read_value(spec: Input, line: Array) -> values.Value | tuple[str, ...] | tuple[int, ...]:
    tensor = spec.tensor
    if spec.use is Use.RESPONSE or spec.field not in _TUPLE_FIELDS:
        return values.scalar(tensor.name, tensor.dtype, line)
    return values.texts(tensor.name, line) if tensor.dtype == "STRING" else values.whole_numbers(line)


def _set(into: dict[str, Any], spec: Input, value: object) -> None:
    if into.setdefault(spec.field, value) != value:
        found = f"{spec.tensor.name} is {value!r}, another name for it says {into[spec.field]!r}"
        raise RequestError("R421", found, fix="Send one of them")


def _as_here(sampling: dict[str, Any]) -> dict[str, Any]:
    """TensorRT-LLM's values that mean something else in `SamplingParams`."""
    if sampling.get("top_p") == 0.0:
        if sampling.get("top_k") == 0:
            sampling["temperature"] = 0.0
        sampling["top_p"] = 1.0
    if sampling.get("draft_source") == "":
        del sampling["draft_source"]
    return sampling


def _apply_end_id(sampling: dict[str, Any], lines: Mapping[str, Array], _: Reading) -> None:
    line = lines.get("end_id")
    if line is None:
        return
    end_id = int(values.scalar("end_id", "INT32", line))
    if end_id == _NO_END:
        sampling["ignore_eos"] = True
    else:
        sampling["stop_token_ids"] = (*sampling.get("stop_token_ids", ()), end_id)


def _apply_words(sampling: dict[str, Any], lines: Mapping[str, Array], reading: Reading) -> None:
    """Words as ids become text, which also matches where tokens fall differently; without text they stay ids."""
    for name, field in (("stop_words_list", "stop"), ("bad_words_list", "bad_words")):
        line = lines.get(name)
        for ids in [] if line is None else values.word_ids(name, line):
            text = reading.decode_word(ids) if reading.decode_word else ""
            if text:
                sampling[field] = (*sampling.get(field, ()), text)
            elif field == "stop" and len(ids) == 1:
                sampling["stop_token_ids"] = (*sampling.get("stop_token_ids", ()), ids[0])
            else:
                raise RequestError("R422", f"{name} holds {list(ids)}, which has no text", needed="words with text")


def _apply_bias(sampling: dict[str, Any], lines: Mapping[str, Array], reading: Reading) -> None:
    bias: dict[int, float] = {}
    dense = lines.get("embedding_bias")
    if dense is not None:
        flat = dense.astype(np.float64).reshape(-1)
        bias = {int(token): float(flat[token]) for token in np.flatnonzero(flat)}
    for word, weight in _bias_words(lines):
        if reading.encode is None:
            raise RequestError("R210", "embedding_bias_words needs a tokenizer, and the engine has none")
        for token in reading.encode(word):
            bias[token] = bias.get(token, 0.0) + weight
    if bias:
        sampling["logit_bias"] = tuple(sorted(bias.items()))


def _bias_words(lines: Mapping[str, Array]) -> list[tuple[str, float]]:
    words, weights = lines.get("embedding_bias_words"), lines.get("embedding_bias_weights")
    texts = [] if words is None else [values.texts("embedding_bias_words", item) for item in words.reshape(-1, 1)]
    numbers = [] if weights is None else weights.astype(np.float64).reshape(-1).tolist()
    named = [text[0] for text in texts if text]
    if named and len(texts) != len(numbers):
        found = f"embedding_bias_words has {len(texts)} words, embedding_bias_weights {len(numbers)} weights"
        raise RequestError("R422", found, needed="one weight for each word")
    return [(text[0], number) for text, number in zip(texts, numbers, strict=False) if text]


def _apply_guide(sampling: dict[str, Any], lines: Mapping[str, Array], _: Reading) -> None:
    kind, guide = (_optional_text(name, lines) for name in ("guided_decoding_guide_type", "guided_decoding_guide"))
    if not kind and not guide:
        return
    if kind not in _GUIDES:
        needed = f"one of {', '.join(_GUIDES)}"
        raise RequestError("R220", f"guided_decoding_guide_type is {kind!r}", needed=needed)
    if bool(guide) == (kind == _ANY_JSON):
        needed = "no guided_decoding_guide: any JSON object fits" if guide else "a guided_decoding_guide"
        raise RequestError("R220", f"guided_decoding_guide_type is {kind!r}", needed=needed)
    sampling["guided_decoding"] = _GUIDES[kind](guide)


def _optional_text(name: str, lines: Mapping[str, Array]) -> str:
    return str(values.scalar(name, "STRING", lines[name])) if name in lines else ""


def _read_prompt_itself(lines: Mapping[str, Array], params: SamplingParams, response: ResponseOptions) -> Ask:
    text, messages = _read_text(lines), values.json_objects("messages", lines.get("messages"))
    if messages:
        if text:
            raise RequestError("R421", "text_input and messages are both given", fix="Send one of them")
        return Ask(None, (), params, response, messages, values.json_objects("tools", lines.get("tools")))
    if text is None and "input_ids" not in lines and not response.stop:
        raise RequestError("R422", "the request has no prompt", needed="text_input or messages, or input_ids")
    return Ask(text, _read_token_ids(lines), params, response)


def _read_text(lines: Mapping[str, Array]) -> str | None:
    line = lines.get("text_input")
    return None if line is None else str(values.scalar("text_input", "STRING", line))


def _read_token_ids(lines: Mapping[str, Array]) -> tuple[int, ...]:
    if "input_ids" not in lines or "input_lengths" not in lines:
        return ()
    ids = values.whole_numbers(lines["input_ids"])
    length = int(values.scalar("input_lengths", "INT32", lines["input_lengths"]))
    if not 0 <= length <= len(ids):
        found = f"input_lengths is {length}, input_ids has {len(ids)} tokens"
        raise RequestError("R422", found, needed=f"0 to {len(ids)}")
    return ids[:length]
