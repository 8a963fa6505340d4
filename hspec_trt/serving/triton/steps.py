# SPDX-License-Identifier: Apache-2.0
"""The ensemble's steps around the token model: text to ids, and ids to text. Pure functions over arrays.

How requests come and go is in `plain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from hspec_trt.errors import RequestError
from hspec_trt.runtime.tokenizer import Tokenizer
from hspec_trt.serving.triton import models, values
from hspec_trt.serving.triton.inputs import Input, Use
from hspec_trt.serving.triton.tensors import Array, Tensor

_REFUSED: Final = ("DECODER_QUERY", "PROMPT_TABLE_EXTRA_ID")
_NOT_SET: Final = -1
Named = list[tuple[Tensor, Array]]


def preprocess(arrays: Mapping[str, Array], tokenizer: Tokenizer, *, vocab_size: int, max_seq_len: int) -> Named:
    """Prompts and words to token ids; the outputs are `models.PREPROCESSING_OUTPUTS`, one line for each prompt.

    Raises:
        RequestError: R101, R105, R210, R422, R423.
    """
    queries = [str(values.scalar("QUERY", "STRING", line)) for line in arrays["QUERY"]]
    for tensor in models.PREPROCESSING_INPUTS:
        if tensor.name in _REFUSED and tensor.name in arrays:
            values.refuse_unless_neutral(Input(tensor, Use.REFUSED, neutral=(0,)), arrays[tensor.name])
    prompts = [tokenizer.encode_prompt(query, max_seq_len) for query in queries]
    count = len(prompts)
    lengths = np.array([[len(prompt)] for prompt in prompts], np.int32)
    made: dict[str, Array] = {
        "INPUT_ID": _lines(prompts, 0),
        "REQUEST_INPUT_LEN": lengths,
        "REQUEST_OUTPUT_LEN": arrays["REQUEST_OUTPUT_LEN"].reshape(count, -1),
        "BAD_WORDS_IDS": _words("BAD_WORDS_DICT", arrays, tokenizer, count),
        "STOP_WORDS_IDS": _words("STOP_WORDS_DICT", arrays, tokenizer, count),
        "EMBEDDING_BIAS": _bias(arrays, tokenizer, vocab_size, count),
        "OUT_END_ID": arrays.get("END_ID", np.full((count, 1), _NOT_SET, np.int32)),
        "OUT_PAD_ID": arrays.get("PAD_ID", np.full((count, 1), _NOT_SET, np.int32)),
    }
    return [(tensor, made[tensor.name]) for tensor in models.PREPROCESSING_OUTPUTS]


def postprocess(arrays: Mapping[str, Array], tokenizer: Tokenizer) -> Named:
    """Token ids ``[b, n, T]`` and their lengths ``[b, n]`` to text ``[b * n]``.

    Where the text itself comes along (``TEXT_BATCH``) it is taken: a chunk's ids alone cannot complete a character
    that began in the chunk before, nor tell where a stop string cut the text.
    """
    (output,) = models.POSTPROCESSING_OUTPUTS
    if "TEXT_BATCH" in arrays:
        return [(output, arrays["TEXT_BATCH"].reshape(-1))]
    ids, lengths = arrays["TOKENS_BATCH"], arrays["SEQUENCE_LENGTH"].reshape(-1).tolist()
    lines = ids.reshape(len(lengths), -1).tolist()
    texts = [tokenizer.decode(line[:length]) for line, length in zip(lines, lengths, strict=True)]
    return [(output, output.array([text.encode() for text in texts]))]


def _lines(items: Sequence[Sequence[int]], padding: int) -> Array:
    """int32 ``[len(items), longest]``."""
    width = max(len(item) for item in items)
    return np.array([[*item, *[padding] * (width - len(item))] for item in items], np.int32).reshape(len(items), width)


def _words(name: str, arrays: Mapping[str, Array], tokenizer: Tokenizer, count: int) -> Array:
    """TensorRT-LLM's form, int32 ``[b, 2, n]``: ids one after the other, and the end of each word (then -1)."""
    pairs: list[tuple[list[int], list[int]]] = []
    for line in arrays.get(name, np.zeros((count, 0), np.object_)):
        words = [tokenizer.encode(word, special=False) for word in values.texts(name, line)]
        ends = np.cumsum([len(word) for word in words]).tolist()
        pairs.append(([token for word in words for token in word], ends))
    width = max(1, *(len(ids) for ids, _ in pairs), *(len(ends) for _, ends in pairs))
    lines = [[[*ids, *[0] * (width - len(ids))], [*ends, *[-1] * (width - len(ends))]] for ids, ends in pairs]
    return np.array(lines, np.int32)


def _bias(arrays: Mapping[str, Array], tokenizer: Tokenizer, vocab_size: int, count: int) -> Array:
    """float32 ``[b, V]``, or ``[b, 1]`` of zeros where no word is biased."""
    words, weights = arrays.get("EMBEDDING_BIAS_WORDS"), arrays.get("EMBEDDING_BIAS_WEIGHTS")
    if words is None or not any(values.texts("EMBEDDING_BIAS_WORDS", words)):
        return np.zeros((count, 1), np.float32)
    if weights is None or weights.shape != words.shape:
        found = f"EMBEDDING_BIAS_WORDS has shape {list(words.shape)}, the weights {np.shape(weights or 0)}"
        raise RequestError("R422", found, needed="one weight for each word")
    bias = np.zeros((count, vocab_size), np.float32)
    for row, (line, numbers) in enumerate(zip(words, weights.tolist(), strict=True)):
        for word, number in zip(line.reshape(-1, 1), numbers, strict=True):
            for text in values.texts("EMBEDDING_BIAS_WORDS", word):
                np.add.at(bias[row], tokenizer.encode(text, special=False), number)
    return bias
