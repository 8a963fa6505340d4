# SPDX-License-Identifier: Apache-2.0
"""The models of an exported repository: `hspec`, and `tensorrt_llm` with its steps, as configurations.

Only what stands in ``config.pbtxt``. What the models do is in `hspec`, `tokens` and `plain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from hspec_trt.serving.triton import inputs, outputs
from hspec_trt.serving.triton.config_text import ModelConfig, Step
from hspec_trt.serving.triton.inputs import Input
from hspec_trt.serving.triton.outputs import Output
from hspec_trt.serving.triton.parameters import ServedParameters
from hspec_trt.serving.triton.tensors import ANY, Tensor

Interface = Literal["ensemble", "llmapi"]
INTERFACES: tuple[Interface, ...] = ("ensemble", "llmapi")
HSPEC: Final = "hspec"
TOKENS: Final = "tensorrt_llm"
PREPROCESSING: Final = "preprocessing"
POSTPROCESSING: Final = "postprocessing"
ENSEMBLE: Final = "ensemble"
TOKENIZER_KEY: Final = "tokenizer_dir"

PREPROCESSING_INPUTS: Final = (
    Tensor("QUERY", "STRING", (1,)),
    Tensor("REQUEST_OUTPUT_LEN", "INT32", (1,)),
    Tensor("DECODER_QUERY", "STRING", (1,), optional=True),
    Tensor("PROMPT_TABLE_EXTRA_ID", "UINT64", (1,), optional=True),
    Tensor("BAD_WORDS_DICT", "STRING", (ANY,), optional=True),
    Tensor("STOP_WORDS_DICT", "STRING", (ANY,), optional=True),
    Tensor("EMBEDDING_BIAS_WORDS", "STRING", (ANY,), optional=True),
    Tensor("EMBEDDING_BIAS_WEIGHTS", "FP32", (ANY,), optional=True),
    Tensor("END_ID", "INT32", (1,), optional=True),
    Tensor("PAD_ID", "INT32", (1,), optional=True),
)
PREPROCESSING_OUTPUTS: Final = (
    Tensor("INPUT_ID", "INT32", (ANY,)),
    Tensor("REQUEST_INPUT_LEN", "INT32", (1,)),
    Tensor("REQUEST_OUTPUT_LEN", "INT32", (ANY,)),
    Tensor("BAD_WORDS_IDS", "INT32", (2, ANY)),
    Tensor("STOP_WORDS_IDS", "INT32", (2, ANY)),
    Tensor("EMBEDDING_BIAS", "FP32", (ANY,)),
    Tensor("OUT_END_ID", "INT32", (1,)),
    Tensor("OUT_PAD_ID", "INT32", (1,)),
)
POSTPROCESSING_INPUTS: Final = (
    Tensor("TOKENS_BATCH", "INT32", (ANY, ANY)),
    Tensor("SEQUENCE_LENGTH", "INT32", (ANY,)),
    Tensor("TEXT_BATCH", "STRING", (ANY,), optional=True),  # the text itself, where the model before knows it
)
POSTPROCESSING_OUTPUTS: Final = (Tensor("OUTPUT", "STRING", (ANY,)),)

_TO_PREPROCESSING: Final = {
    "QUERY": "text_input",
    "REQUEST_OUTPUT_LEN": "max_tokens",
    "DECODER_QUERY": "decoder_text_input",
    "PROMPT_TABLE_EXTRA_ID": "prompt_table_extra_id",
    "EMBEDDING_BIAS_WORDS": "embedding_bias_words",
    "EMBEDDING_BIAS_WEIGHTS": "embedding_bias_weights",
}
_FROM_PREPROCESSING: Final = {
    "INPUT_ID": "input_ids",
    "REQUEST_INPUT_LEN": "input_lengths",
    "REQUEST_OUTPUT_LEN": "request_output_len",
    "EMBEDDING_BIAS": "embedding_bias",
}
_RENAMED: Final = {
    "streaming": "stream",
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
    "len_penalty": "length_penalty",
}
"""Inputs of tensorrt_llm to the ensemble's, where the two differ."""


def _tensors(specs: Sequence[Input] | Sequence[Output]) -> tuple[Tensor, ...]:
    return tuple(spec.tensor for spec in specs)


def hspec_inputs(interface: Interface) -> tuple[Input, ...]:
    """All inputs of `hspec`; the interfaces differ in the prompt's dims (and in the batch dimension)."""
    prompt = inputs.TEXT_PROMPT_OR_MESSAGES if interface == "ensemble" else inputs.TEXT_PROMPT_FLAT
    return (prompt, *inputs.TEXT_INPUTS)


def hspec_model(
    parameters: ServedParameters, *, interface: Interface, max_batch_size: int, decoupled: bool, instances: int
) -> ModelConfig:
    """The model that takes and gives text."""
    return ModelConfig(
        name=HSPEC,
        max_batch_size=max_batch_size if interface == "ensemble" else 0,
        inputs=_tensors(hspec_inputs(interface)),
        outputs=_tensors(outputs.TEXT_OUTPUTS),
        decoupled=decoupled,
        instances=instances,
        parameters=parameters.to_strings(),
    )


def tensorrt_llm_models(
    parameters: ServedParameters, *, max_batch_size: int, decoupled: bool, instances: int
) -> tuple[ModelConfig, ...]:
    """The model that takes and gives token ids, the two steps around it, and the ensemble of the three."""
    served = ModelConfig(
        name=TOKENS,
        max_batch_size=max_batch_size,
        inputs=_tensors((*inputs.TOKEN_PROMPT, *inputs.TOKEN_INPUTS)),
        outputs=_tensors(outputs.TOKEN_OUTPUTS),
        decoupled=decoupled,
        instances=instances,
        parameters=parameters.to_strings(),
    )
    tokenizer = {TOKENIZER_KEY: parameters.engine}
    plain = replace(served, decoupled=False, instances=1, parameters=tokenizer)
    preprocessing = replace(plain, name=PREPROCESSING, inputs=PREPROCESSING_INPUTS, outputs=PREPROCESSING_OUTPUTS)
    postprocessing = replace(plain, name=POSTPROCESSING, inputs=POSTPROCESSING_INPUTS, outputs=POSTPROCESSING_OUTPUTS)
    return served, preprocessing, postprocessing, _ensemble(max_batch_size)


def _ensemble(max_batch_size: int) -> ModelConfig:
    tensors = [inputs.TEXT_PROMPT.tensor, *_tensors(inputs.ENSEMBLE_OPTIONS)]
    needed = [replace(one, optional=False) if one.name == "max_tokens" else one for one in tensors]
    return ModelConfig(
        name=ENSEMBLE,
        max_batch_size=max_batch_size,
        inputs=needed,
        outputs=_tensors(outputs.ENSEMBLE_OUTPUTS),
        steps=(
            Step(PREPROCESSING, _TO_PREPROCESSING, {key: f"_{key}" for key in _FROM_PREPROCESSING}),
            Step(TOKENS, _to_tokens(), _from_tokens()),
            Step(
                POSTPROCESSING,
                {"TOKENS_BATCH": "_OUTPUT_IDS", "SEQUENCE_LENGTH": "_SEQUENCE_LENGTH", "TEXT_BATCH": "_OUTPUT_TEXT"},
                {"OUTPUT": "text_output"},
            ),
        ),
    )


def _to_tokens() -> dict[str, str]:
    """Prompt and lengths from the step before, every other input straight from the ensemble's."""
    taken = set(_TO_PREPROCESSING.values())
    offered = {spec.tensor.name for spec in inputs.ENSEMBLE_OPTIONS} - taken
    mapped = {name: f"_{key}" for key, name in _FROM_PREPROCESSING.items()}
    for spec in inputs.TOKEN_INPUTS:
        source = _RENAMED.get(spec.tensor.name, spec.tensor.name)
        if source in offered:
            mapped[spec.tensor.name] = source
    return mapped


def _from_tokens() -> dict[str, str]:
    given = {spec.tensor.name for spec in outputs.TOKEN_OUTPUTS}
    straight = [one.tensor.name for one in outputs.ENSEMBLE_OUTPUTS if one.tensor.name in given]
    inner = {"output_ids": "_OUTPUT_IDS", "sequence_length": "_SEQUENCE_LENGTH", "output_text": "_OUTPUT_TEXT"}
    return inner | {name: name for name in straight}
