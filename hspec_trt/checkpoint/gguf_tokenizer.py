# SPDX-License-Identifier: Apache-2.0
"""Rebuilds tokenizer files from GGUF metadata: tokenizer.json, tokenizer_config.json and the chat template.

Owns the byte-level BPE vocabularies (``tokenizer.ggml.model`` "gpt2") whose pre-tokenizer is in the table. It does not
know models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from hspec_trt.checkpoint.gguf_metadata import Metadata
from hspec_trt.checkpoint.hf_target import CHAT_TEMPLATE, TOKENIZER, TOKENIZER_CONFIG
from hspec_trt.errors import CheckpointError

_PREFIX: Final = "tokenizer.ggml."
_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type
_SPECIAL: Final = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id"} | {
    "pad_token": "padding_token_id"
}

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class _PreTokenizer:
    """How text is cut before the merges apply.

    Attributes:
        pattern: regular expression of one piece; empty takes GPT-2's own.
        single_digits: cut every digit off first.
        ignore_merges: a piece that is a token is taken whole.
        nfc: normalise the text to NFC first.
    """

    pattern: str = ""
    single_digits: bool = False
    ignore_merges: bool = False
    nfc: bool = False


_LLAMA3 = _PreTokenizer(_WORDS + r"\p{N}{1,3}" + _REST, ignore_merges=True)
_QWEN2 = _PreTokenizer(_WORDS + r"\p{N}" + _REST, nfc=True)
_PRE_TOKENIZERS: Final = {
    "gpt-2": _PreTokenizer(),
    "smollm": _PreTokenizer(single_digits=True),
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "qwen2": _QWEN2,
}


def tokenizer_files(metadata: Metadata) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The tokenizer files that a GGUF file describes, and warnings.

    Without a tokenizer that is known the files are left out and a warning says so: token ids still work.

    Raises:
        CheckpointError: C019 for metadata of the wrong type; C027 for a vocabulary that contradicts itself.
    """
    files: dict[str, bytes] = {}
    if metadata.has("tokenizer.chat_template"):
        files[CHAT_TEMPLATE] = metadata.text("tokenizer.chat_template").encode()
    kind = metadata.text(_PREFIX + "model", "none")
    pre = metadata.text(_PREFIX + "pre", "gpt-2")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        note = f"the tokenizer ({kind}, pre-tokenizer {pre}) is not supported (gpt2 with {known}): give token ids"
        return files, (note,)
    tokens = metadata.texts(_PREFIX + "tokens")
    files[TOKENIZER] = _byte_level(metadata, tokens, _PRE_TOKENIZERS[pre]).to_str().encode()
    files[TOKENIZER_CONFIG] = _tokenizer_config(metadata, tokens)
    return files, ()


def _byte_level(metadata: Metadata, tokens: Sequence[str], pre: _PreTokenizer) -> Tokenizer:
    ids = {token: index for index, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        twice = next(token for index, token in enumerate(tokens) if ids[token] != index)
        raise CheckpointError("C027", f"token {twice[:80]!r} has two ids", where=metadata.where)
    merges = [_merge(line, ids, metadata.where) for line in metadata.texts(_PREFIX + "merges")]
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=pre.ignore_merges))
    if pre.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _cutter(pre)
    tokenizer.decoder = decoders.ByteLevel()
    types = metadata.integers(_PREFIX + "token_type") if metadata.has(_PREFIX + "token_type") else []
    for kind, add in ((_CONTROL, tokenizer.add_special_tokens), (_USER_DEFINED, tokenizer.add_tokens)):
        chosen = [token for token, of_kind in zip(tokens, types, strict=False) if of_kind == kind]
        add([AddedToken(token, normalized=False, special=kind == _CONTROL) for token in chosen])
    tokenizer.post_processor = _post_processor(metadata, tokens)
    return tokenizer


def _merge(line: str, ids: dict[str, int], where: str) -> tuple[str, str]:
    left, _, right = line.partition(" ")
    if left not in ids or right not in ids or left + right not in ids:
        raise CheckpointError("C027", f"merge {line[:80]!r} is not of tokens of the vocabulary", where=where)
    return left, right


def _cutter(pre: _PreTokenizer) -> pre_tokenizers.PreTokenizer:
    if pre.pattern:
        split = pre_tokenizers.Split(Regex(pre.pattern), behavior="isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre.single_digits:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_of_words])
    return bytes_of_words


def _post_processor(metadata: Metadata, tokens: Sequence[str]) -> processors.PostProcessor:
    bytes_back = processors.ByteLevel(trim_offsets=True)
    bos = _token_id(metadata, "bos_token_id", len(tokens))
    if bos is None or not metadata.flag(_PREFIX + "add_bos_token", False):
        return bytes_back
    name = tokens[bos]
    begin = processors.TemplateProcessing(
        single=[name, "$A"], pair=[name, "$A", f"{name}:1", "$B:1"], special_tokens=[(name, bos)]
    )
    return processors.Sequence([bytes_back, begin])


def _tokenizer_config(metadata: Metadata, tokens: Sequence[str]) -> bytes:
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": metadata.flag(_PREFIX + "add_bos_token", False),
    }
    for name, key in _SPECIAL.items():
        index = _token_id(metadata, key, len(tokens))
        if index is not None:
            config[name] = tokens[index]
    return (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()


def _token_id(metadata: Metadata, key: str, num_tokens: int) -> int | None:
    if not metadata.has(_PREFIX + key):
        return None
    index = metadata.integer(_PREFIX + key)
    if not 0 <= index < num_tokens:
        raise CheckpointError("C036", f"{key} {index} is outside the vocabulary", where=metadata.where)
    return index
