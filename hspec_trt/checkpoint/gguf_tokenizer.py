# SPDX-License-Identifier: Apache-2.0
"""Rebuilds tokenizer files from GGUF metadata: tokenizer.json, tokenizer_config.json and the chat template.

Owns the two kinds of vocabulary that Llama-shaped models have: byte-level BPE ("gpt2", with the pre-tokenizers of the
table) and SentencePiece BPE ("llama"). It does not know models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from hspec_trt.checkpoint.gguf_metadata import Metadata
from hspec_trt.checkpoint.hf_target import CHAT_TEMPLATE, TOKENIZER_CONFIG
from hspec_trt.checkpoint.tokenizer_check import TOKENIZER
from hspec_trt.errors import CheckpointError

_PREFIX: Final = "tokenizer.ggml."
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # values of tokenizer.ggml.token_type
_SPACE: Final = "\u2581"
_SPECIAL: Final = (
    ("bos_token", "bos_token_id"),
    ("eos_token", "eos_token_id"),
    ("unk_token", "unknown_token_id"),
    ("pad_token", "padding_token_id"),
)
_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class _PreTokenizer:
    """How text is cut before the merges of a byte-level vocabulary apply.

    Attributes:
        pattern: regular expression of one piece; empty takes GPT-2's own.
        single_digits: cut off every digit first.
        ignore_merges: a piece that is a token is taken whole.
        nfc: normalise the text to NFC first.
        add_bos: begin a text with the bos token where the file does not say.
    """

    pattern: str = ""
    single_digits: bool = False
    ignore_merges: bool = False
    nfc: bool = False
    add_bos: bool = False


_LLAMA3: Final = _PreTokenizer(_WORDS + r"\p{N}{1,3}" + _REST, ignore_merges=True, add_bos=True)
_PRE_TOKENIZERS: Final = {
    "gpt-2": _PreTokenizer(),
    "smollm": _PreTokenizer(single_digits=True),
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "qwen2": _PreTokenizer(_WORDS + r"\p{N}" + _REST, nfc=True),
}


def tokenizer_files(metadata: Metadata) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The tokenizer files that a GGUF file describes, and warnings.

    Without a tokenizer that is known they are left out and a warning says so: token ids still work.

    Raises:
        CheckpointError: C019 for metadata of the wrong type, C027 for a vocabulary that contradicts itself, C036.
    """
    files: dict[str, bytes] = {}
    if metadata.has("tokenizer.chat_template"):
        files[CHAT_TEMPLATE] = metadata.text("tokenizer.chat_template").encode()
    kind = metadata.text(_PREFIX + "model", "none")
    pre = metadata.text(_PREFIX + "pre", "gpt-2")
    if kind == "llama":
        vocabulary = _Vocabulary.read(metadata, add_bos=True)
        tokenizer = _sentence_piece(vocabulary)
    elif kind == "gpt2" and pre in _PRE_TOKENIZERS:
        vocabulary = _Vocabulary.read(metadata, add_bos=_PRE_TOKENIZERS[pre].add_bos)
        tokenizer = _byte_level(vocabulary, _PRE_TOKENIZERS[pre])
    else:
        known = ", ".join(_PRE_TOKENIZERS)
        note = f"its tokenizer ({kind}, pre-tokenizer {pre}) is not known (llama, or gpt2 with {known})"
        return files, (f"{note}; prompts are given as token ids",)
    files[TOKENIZER] = tokenizer.to_str().encode()
    files[TOKENIZER_CONFIG] = vocabulary.config()
    return files, ()


@dataclass(frozen=True)
class _Vocabulary:
    """Tokens by id, and which of them are special.

    Attributes:
        special: token by its name in tokenizer_config.json.
    """

    metadata: Metadata
    tokens: Sequence[str]
    ids: dict[str, int]
    types: Sequence[int]
    special: dict[str, str]
    add_bos: bool

    @classmethod
    def read(cls, metadata: Metadata, *, add_bos: bool) -> _Vocabulary:
        tokens = metadata.texts(_PREFIX + "tokens")
        ids = {token: index for index, token in enumerate(tokens)}
        if len(ids) != len(tokens):
            twice = next(token for index, token in enumerate(tokens) if ids[token] != index)
            raise CheckpointError("C027", f"token {twice[:80]!r} has two ids", where=metadata.where)
        types = metadata.integers(_PREFIX + "token_type") if metadata.has(_PREFIX + "token_type") else []
        if len(types) not in (0, len(tokens)):
            raise CheckpointError("C027", f"{len(types)} token types for {len(tokens)} tokens", where=metadata.where)
        special = {}
        for name, key in _SPECIAL:
            if metadata.has(_PREFIX + key):
                index = metadata.integer(_PREFIX + key)
                if not 0 <= index < len(tokens):
                    raise CheckpointError("C036", f"{key} {index} is outside the vocabulary", where=metadata.where)
                special[name] = tokens[index]
        return cls(metadata, tokens, ids, types, special, metadata.flag(_PREFIX + "add_bos_token", add_bos))

    def of_type(self, kind: int) -> list[str]:
        return [token for token, its_kind in zip(self.tokens, self.types, strict=False) if its_kind == kind]

    def mark_special(self, tokenizer: Tokenizer) -> Tokenizer:
        """Add control tokens, user-defined tokens and the bos rule to a tokenizer."""
        special = [AddedToken(token, normalized=False, special=True) for token in self.of_type(_CONTROL)]
        tokenizer.add_special_tokens(special)
        tokenizer.add_tokens([AddedToken(token, normalized=False) for token in self.of_type(_USER_DEFINED)])
        if self.add_bos and "bos_token" in self.special:
            bos = self.special["bos_token"]
            begin = processors.TemplateProcessing(
                single=[bos, "$A"], pair=[bos, "$A", f"{bos}:1", "$B:1"], special_tokens=[(bos, self.ids[bos])]
            )
            parts = [] if tokenizer.post_processor is None else [tokenizer.post_processor]
            tokenizer.post_processor = processors.Sequence([*parts, begin])
        return tokenizer

    def config(self) -> bytes:
        """tokenizer_config.json."""
        config: dict[str, str | bool] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "add_bos_token": self.add_bos,
        }
        return (json.dumps(config | self.special, indent=2, ensure_ascii=False) + "\n").encode()


def _byte_level(vocabulary: _Vocabulary, pre: _PreTokenizer) -> Tokenizer:
    merges = [_merge(line, vocabulary) for line in vocabulary.metadata.texts(_PREFIX + "merges")]
    tokenizer = Tokenizer(models.BPE(vocabulary.ids, merges, ignore_merges=pre.ignore_merges))
    if pre.nfc:
        tokenizer.normalizer = normalizers.NFC()
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pre.pattern)
    if pre.pattern:
        cut = pre_tokenizers.Split(Regex(pre.pattern), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, by_bytes])
    elif pre.single_digits:
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, by_bytes])
    else:
        tokenizer.pre_tokenizer = by_bytes
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return vocabulary.mark_special(tokenizer)


def _merge(line: str, vocabulary: _Vocabulary) -> tuple[str, str]:
    left, _, right = line.partition(" ")
    if any(part not in vocabulary.ids for part in (left, right, left + right)):
        found = f"merge {line[:80]!r} is not of tokens of the vocabulary"
        raise CheckpointError("C027", found, where=vocabulary.metadata.where)
    return left, right


def _sentence_piece(vocabulary: _Vocabulary) -> Tokenizer:
    """SentencePiece BPE: the pair whose union has the best score is joined first; unknown characters fall to bytes."""
    model = models.BPE(
        vocabulary.ids,
        _merges_by_score(vocabulary),
        unk_token=vocabulary.special.get("unk_token"),
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    prefix = vocabulary.metadata.flag(_PREFIX + "add_space_prefix", True)
    spaces = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if prefix else spaces
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return vocabulary.mark_special(tokenizer)


def _merges_by_score(vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    scores = vocabulary.metadata.numbers(_PREFIX + "scores")
    if len(scores) != len(vocabulary.tokens):
        found = f"{len(scores)} scores for {len(vocabulary.tokens)} tokens"
        raise CheckpointError("C027", found, where=vocabulary.metadata.where)
    merges: list[tuple[float, str, str]] = []
    for piece in vocabulary.of_type(_NORMAL) if vocabulary.types else vocabulary.tokens:
        score = scores[vocabulary.ids[piece]]
        for cut in range(1, len(piece)):
            if piece[:cut] in vocabulary.ids and piece[cut:] in vocabulary.ids:
                merges.append((score, piece[:cut], piece[cut:]))
    merges.sort(key=lambda merge: (-merge[0], -len(merge[1])))
    return [(left, right) for _, left, right in merges]
