# SPDX-License-Identifier: Apache-2.0
"""The inputs that the served models take, under the names of TensorRT-LLM's Triton models, and what each one means.

A request may use any spelling that those models know (``max_tokens`` of the ensemble, ``sampling_param_max_tokens`` of
the llmapi model, ``request_output_len`` of tensorrt_llm). An input for something that cannot be done here is accepted
at the value that asks for nothing, and refused by name otherwise. How values are read is `requests`' business.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from hspec_trt.serving.triton.tensors import ANY, Tensor, TritonType


class Use(Enum):
    """What becomes of an input."""

    SAMPLING = "a field of SamplingParams"
    RESPONSE = "a field of ResponseOptions"
    SPECIAL = "read by name"
    REFUSED = "accepted only at a value that asks for nothing"
    UNUSED = "accepted and without effect here"


@dataclass(frozen=True)
class Input:
    """One input of a served model.

    Attributes:
        field: what it sets (`Use.SAMPLING`, `Use.RESPONSE`).
        neutral: values that ask for nothing (`Use.REFUSED`); an empty tensor or empty strings always do.
    """

    tensor: Tensor
    use: Use
    field: str = ""
    neutral: tuple[float, ...] = ()


def _one(name: str, dtype: TritonType) -> Tensor:
    return Tensor(name, dtype, (1,), optional=True)


def _many(name: str, dtype: TritonType, *dims: int, ragged: bool = False) -> Tensor:
    return Tensor(name, dtype, dims or (ANY,), optional=True, ragged=ragged)


def _sampling(name: str, dtype: TritonType, field: str = "") -> Input:
    return Input(_one(name, dtype), Use.SAMPLING, field or name)


def _response(name: str, field: str) -> Input:
    return Input(_one(name, "BOOL"), Use.RESPONSE, field)


def _refused(name: str, dtype: TritonType, *neutral: float) -> Input:
    return Input(_one(name, dtype), Use.REFUSED, neutral=neutral)


def _refused_tensor(name: str, dtype: TritonType, *dims: int) -> Input:
    return Input(_many(name, dtype, *dims, ragged=True), Use.REFUSED)


def _unused(name: str, dtype: TritonType) -> Input:
    return Input(_one(name, dtype), Use.UNUSED)


_OPTIONS: Final = (
    _sampling("num_return_sequences", "INT32", "n"),
    _sampling("temperature", "FP32"),
    _sampling("repetition_penalty", "FP32"),
    _sampling("min_tokens", "INT32"),
    _sampling("presence_penalty", "FP32"),
    _sampling("frequency_penalty", "FP32"),
    _sampling("seed", "UINT64"),
    Input(_one("end_id", "INT32"), Use.SPECIAL),
    _unused("pad_id", "INT32"),
    _refused("beam_width", "INT32", 1),
    _response("return_log_probs", "log_probs"),
    _response("return_perf_metrics", "perf_metrics"),
    _response("return_num_input_tokens", "num_input_tokens"),
    _response("return_num_output_tokens", "num_output_tokens"),
    _response("exclude_input_in_output", "exclude_input"),
    _refused("return_context_logits", "BOOL", 0),
    _refused("return_generation_logits", "BOOL", 0),
    _refused_tensor("prompt_embedding_table", "FP16", ANY, ANY),
    _refused("prompt_vocab_size", "INT32", 0),
    _refused("lora_task_id", "UINT64", 0),
    _refused_tensor("lora_weights", "FP16", ANY, ANY),
    _refused_tensor("lora_config", "INT32", ANY, 3),
    Input(_many("guided_decoding_guide_type", "STRING", 1, ragged=True), Use.SPECIAL),
    Input(_many("guided_decoding_guide", "STRING", 1, ragged=True), Use.SPECIAL),
)
"""What the ensemble and tensorrt_llm have in common."""

_OWN: Final = (
    _sampling("min_p", "FP32"),
    _sampling("ignore_eos", "BOOL"),
    _sampling("drafts", "STRING"),
    _sampling("draft_source", "STRING"),
    _sampling("num_draft_tokens", "INT32", "num_drafts"),  # a name of the BLS model
    Input(_many("stop_token_ids", "INT32"), Use.SAMPLING, "stop_token_ids"),
    _response("return_token_ids", "token_ids"),
)
"""Options that TensorRT-LLM's models have no name for."""

_WORDS: Final = (
    Input(_many("bad_words", "STRING"), Use.SAMPLING, "bad_words"),
    Input(_many("stop_words", "STRING"), Use.SAMPLING, "stop"),
)

_ENSEMBLE: Final = (
    _sampling("max_tokens", "INT32"),
    *_WORDS,
    _sampling("top_k", "INT32"),
    _sampling("top_p", "FP32"),
    _unused("length_penalty", "FP32"),
    _response("stream", "stream"),
    Input(_many("embedding_bias_words", "STRING"), Use.SPECIAL),
    Input(_many("embedding_bias_weights", "FP32"), Use.SPECIAL),
    _refused("decoder_text_input", "STRING"),
    _refused("prompt_table_extra_id", "UINT64", 0),
    _sampling("random_seed", "UINT64", "seed"),  # names of older releases
    _sampling("min_length", "INT32", "min_tokens"),
)

_LLMAPI: Final = (
    _response("streaming", "stream"),
    _refused("sampling_param_best_of", "INT32", 1),
    _sampling("sampling_param_temperature", "FP32", "temperature"),
    _sampling("sampling_param_top_k", "INT32", "top_k"),
    _sampling("sampling_param_top_p", "FP32", "top_p"),
    _sampling("sampling_param_frequency_penalty", "FP32", "frequency_penalty"),
    _sampling("sampling_param_presence_penalty", "FP32", "presence_penalty"),
    _sampling("sampling_param_max_tokens", "INT32", "max_tokens"),
    Input(_many("sampling_param_stop", "STRING"), Use.SAMPLING, "stop"),
    _sampling("sampling_param_seed", "UINT64", "seed"),
    _response("sampling_param_exclude_input_from_output", "exclude_input"),
    _response("sampling_param_return_perf_metrics", "perf_metrics"),
    _refused("sampling_param_logits_post_processor_name", "STRING"),
    _unused("return_finish_reason", "BOOL"),
    _unused("return_stop_reason", "BOOL"),
    _response("return_cumulative_logprob", "log_probs"),
    _response("stop", "stop"),
    _refused_tensor("image_url", "STRING"),
    _refused("lora_id", "UINT64", 0),
    _refused("lora_name", "STRING"),
    _refused("lora_path", "STRING"),
    _refused("lora_ckpt_source", "STRING"),
)

TEXT_PROMPT: Final = Input(Tensor("text_input", "STRING", (1,)), Use.SPECIAL)
"""The prompt of the ensemble."""

TEXT_PROMPT_OR_MESSAGES: Final = Input(_one("text_input", "STRING"), Use.SPECIAL)
TEXT_PROMPT_FLAT: Final = Input(_many("text_input", "STRING"), Use.SPECIAL)
"""The prompt of `hspec`, which may be a conversation instead; and the same in the llmapi model's form."""

_CHAT: Final = (Input(_one("messages", "STRING"), Use.SPECIAL), Input(_one("tools", "STRING"), Use.SPECIAL))

TEXT_INPUTS: Final = (*_CHAT, *_ENSEMBLE, *_OPTIONS, *_LLMAPI, *_OWN)
"""Inputs of the model `hspec` after the prompt."""

ENSEMBLE_OPTIONS: Final = (*_ENSEMBLE, *_OPTIONS, *_OWN)
"""Inputs of the model `ensemble` after the prompt."""


def _scalar(name: str, dtype: TritonType, use: Use, field: str = "", neutral: tuple[float, ...] = ()) -> Input:
    return Input(Tensor(name, dtype, (1,), optional=True, scalar=True), use, field, neutral)


_TOKEN_SCALARS: Final = (
    _scalar("runtime_top_k", "INT32", Use.SAMPLING, "top_k"),
    _scalar("runtime_top_p", "FP32", Use.SAMPLING, "top_p"),
    _scalar("runtime_top_p_min", "FP32", Use.REFUSED, neutral=(0.0,)),
    _scalar("runtime_top_p_decay", "FP32", Use.REFUSED, neutral=(0.0, 1.0)),
    _scalar("runtime_top_p_reset_ids", "INT32", Use.REFUSED, neutral=(-1,)),
    _scalar("len_penalty", "FP32", Use.UNUSED),
    _scalar("early_stopping", "BOOL", Use.UNUSED),
    _scalar("beam_search_diversity_rate", "FP32", Use.UNUSED),
    _scalar("stop", "BOOL", Use.RESPONSE, "stop"),
    _scalar("streaming", "BOOL", Use.RESPONSE, "stream"),
    _scalar("random_seed", "UINT64", Use.SAMPLING, "seed"),
    _scalar("min_length", "INT32", Use.SAMPLING, "min_tokens"),
    _scalar("draft_acceptance_threshold", "FP32", Use.UNUSED),
    _scalar("encoder_output_lengths", "INT32", Use.REFUSED, neutral=(0,)),
    _scalar("decoder_input_lengths", "INT32", Use.REFUSED, neutral=(0,)),
)

_CACHE_HINTS: Final = (
    *(
        Input(_many(f"retention_token_range_{name}", "INT32", ragged=True), Use.UNUSED)
        for name in ("starts", "ends", "priorities", "durations_ms")
    ),
    _unused("retention_decode_priority", "INT32"),
    _unused("retention_decode_duration_ms", "INT32"),
)

_TOKEN_TENSORS: Final = (
    Input(_many("stop_words_list", "INT32", 2, ANY, ragged=True), Use.SPECIAL),
    Input(_many("bad_words_list", "INT32", 2, ANY, ragged=True), Use.SPECIAL),
    Input(_many("embedding_bias", "FP32", ragged=True), Use.SPECIAL),
    _refused_tensor("draft_input_ids", "INT32", ANY),
    _refused_tensor("draft_logits", "FP32", ANY, ANY),
    _refused_tensor("decoder_input_ids", "INT32", ANY),
    _refused_tensor("encoder_input_features", "FP16", ANY, ANY),
    _refused_tensor("prompt_table_extra_ids", "UINT64", ANY),
    _refused_tensor("cross_attention_mask", "BOOL", ANY, ANY),
    _refused_tensor("skip_cross_attn_blocks", "BOOL", 1),
    _refused_tensor("context_phase_params", "UINT8", ANY),
    _refused_tensor("mrope_rotary_cos_sin", "FP32", ANY),
    _refused_tensor("mrope_position_deltas", "INT64", 1),
    _refused_tensor("lookahead_window_size", "INT32", 1),
    _refused_tensor("lookahead_ngram_size", "INT32", 1),
    _refused_tensor("lookahead_verification_set_size", "INT32", 1),
)

TOKEN_PROMPT: Final = (
    Input(_many("input_ids", "INT32", ragged=True), Use.SPECIAL),
    Input(Tensor("input_lengths", "INT32", (1,), scalar=True), Use.SPECIAL),
    Input(Tensor("request_output_len", "INT32", (1,), scalar=True), Use.SAMPLING, "max_tokens"),
)

_SCALAR_OPTIONS: Final = tuple(
    Input(
        Tensor(one.tensor.name, one.tensor.dtype, one.tensor.dims, True, not one.tensor.ragged, one.tensor.ragged),
        one.use,
        one.field,
        one.neutral,
    )
    for one in _OPTIONS
)

TOKEN_INPUTS: Final = (*_SCALAR_OPTIONS, *_TOKEN_SCALARS, *_TOKEN_TENSORS, *_CACHE_HINTS, *_WORDS, *_OWN)
"""Inputs of the model `tensorrt_llm` after the prompt. `_WORDS` and `_OWN` are additions to TensorRT-LLM's names."""
