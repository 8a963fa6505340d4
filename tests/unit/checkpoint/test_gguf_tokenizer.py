# SPDX-License-Identifier: Apache-2.0
"""Tokenizers rebuilt from GGUF metadata: each pre-tokenizer, bos, special tokens, SentencePiece merges by score."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from tokenizers import Tokenizer

from hspec_trt.checkpoint.gguf_metadata import Metadata
from hspec_trt.checkpoint.gguf_tokenizer import tokenizer_files
from tests.support.faults import codes_of
from tests.support.tiny_tokenizer import tiny_tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def _byte_level(pre: str, merges: list[str], **extra: Any) -> Metadata:
    """All bytes and some merges: ids 0 to 2 are special, 3 is user-defined."""
    vocab = json.loads(tiny_tokenizer(259).to_str())["model"]["vocab"]
    symbols = sorted(vocab, key=lambda token: int(vocab[token]))
    tokens = [*symbols[:3], "<think>", *symbols[3:], *(merge.replace(" ", "") for merge in merges)]
    values: dict[str, Any] = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [CONTROL] * 3 + [USER_DEFINED] + [NORMAL] * (len(tokens) - 4),
        "merges": merges,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return Metadata({f"tokenizer.ggml.{key}": value for key, value in (values | extra).items()}, "f.gguf")


def _tokenizer(metadata: Metadata) -> Tokenizer:
    files, warnings = tokenizer_files(metadata)
    assert warnings == ()
    return Tokenizer.from_str(files["tokenizer.json"].decode())


MERGES = ["1 2", "12 3", "3 4", "Ġ Ġ", "a b", "Ċ Ċ", "Ġ a"]
CUTS = {
    "gpt-2": ("ab 1234\n\n1", ["ab", "Ġ", "123", "4", "Ċ", "Ċ", "1"]),
    "smollm": ("ab 1234\n\n1", ["ab", "Ġ", "1", "2", "3", "4", "ĊĊ", "1"]),
    "llama-bpe": ("ab 1234\n\n1", ["ab", "Ġ", "123", "4", "ĊĊ", "1"]),
    "qwen2": ("ab 1234\n\n1", ["ab", "Ġ", "1", "2", "3", "4", "ĊĊ", "1"]),
}


@pytest.mark.parametrize(("pre", "text", "tokens"), [(pre, *case) for pre, case in CUTS.items()], ids=CUTS)
def test_text_is_cut_before_it_is_merged(pre: str, text: str, tokens: list[str]) -> None:
    tokenizer = _tokenizer(_byte_level(pre, MERGES))
    encoded = tokenizer.encode(text, add_special_tokens=False)
    assert encoded.tokens == tokens
    assert tokenizer.decode(encoded.ids) == text


@pytest.mark.parametrize("pre", CUTS)
def test_round_trip_and_special_tokens(pre: str) -> None:
    tokenizer = _tokenizer(_byte_level(pre, MERGES))
    text = "naïve 日本語 🙂  x\t\r\n 12345<think>abc"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == text and 3 in ids
    with_special = tokenizer.encode("a</s>", add_special_tokens=False)
    assert with_special.ids[-1] == 2 and tokenizer.decode(with_special.ids) == "a"


@pytest.mark.parametrize(
    ("pre", "add_bos", "first"),
    [("llama-bpe", None, 1), ("llama-bpe", False, None), ("gpt-2", None, None), ("gpt-2", True, 1)],
)
def test_bos(pre: str, add_bos: bool | None, first: int | None) -> None:
    extra = {} if add_bos is None else {"add_bos_token": add_bos}
    metadata = _byte_level(pre, MERGES, **extra)
    ids = _tokenizer(metadata).encode("ab").ids
    assert (ids[0] == 1) == (first == 1)
    assert json.loads(tokenizer_files(metadata)[0]["tokenizer_config.json"])["add_bos_token"] == (first == 1)


def test_whole_piece_that_is_a_token_is_taken_by_llama3() -> None:
    # "xyz" is a token that no merge leads to.
    extra = _byte_level("llama-bpe", MERGES).values["tokenizer.ggml.tokens"]
    assert isinstance(extra, list)
    tokens = [*extra, "xyz"]
    types = [CONTROL] * 3 + [USER_DEFINED] + [NORMAL] * (len(tokens) - 4)
    for pre, expected in (("llama-bpe", ["xyz"]), ("qwen2", ["x", "y", "z"])):
        tokenizer = _tokenizer(_byte_level(pre, MERGES, tokens=tokens, token_type=types))
        assert tokenizer.encode("xyz", add_special_tokens=False).tokens == expected


PIECES: dict[str, float] = {
    piece: -float(rank)
    for rank, piece in enumerate(
        ["▁t", "he", "in", "▁a", "▁the", "re", "on", "▁th", "er", "nd", "▁and", "at", "ther", "▁i", "▁in", "ing", "the"]
    )
}


def _sentence_piece(**extra: Any) -> Metadata:
    letters = "▁etaoinshrdlug"
    pieces = [
        ("<unk>", 0.0, UNKNOWN),
        ("<s>", 0.0, CONTROL),
        ("</s>", 0.0, CONTROL),
        *((f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)),
        *((piece, score, NORMAL) for piece, score in PIECES.items()),
        *((letter, -1000.0 - rank, NORMAL) for rank, letter in enumerate(letters)),
    ]
    values: dict[str, Any] = {
        "model": "llama",
        "tokens": [piece for piece, _, _ in pieces],
        "scores": [score for _, score, _ in pieces],
        "token_type": [kind for _, _, kind in pieces],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return Metadata({f"tokenizer.ggml.{key}": value for key, value in (values | extra).items()}, "f.gguf")


def _best_score_first(text: str) -> list[str]:
    """SentencePiece's own rule: join the neighbours whose union scores best, the leftmost first."""
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        scored = [(PIECES[a + b], -i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in PIECES]
        if not scored:
            return parts
        at = -max(scored)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def test_sentence_piece_joins_the_best_score_first() -> None:
    tokenizer = _tokenizer(_sentence_piece())
    generator = random.Random(0)
    for _ in range(500):
        text = "".join(generator.choice("etaoinshrd gg thein") for _ in range(generator.randint(1, 20)))
        assert tokenizer.encode(text, add_special_tokens=False).tokens == _best_score_first(text), text


def test_sentence_piece_round_trip() -> None:
    tokenizer = _tokenizer(_sentence_piece())
    for text in ["the other and", " two  spaces ", "naïve 日本\n", "🙂"]:
        encoded = tokenizer.encode(text)
        assert encoded.ids[0] == 1
        assert tokenizer.decode(encoded.ids) == text
    assert "<0xC3>" in tokenizer.encode("ï").tokens


def test_sentence_piece_without_a_space_before() -> None:
    tokenizer = _tokenizer(_sentence_piece(add_space_prefix=False, add_bos_token=False))
    assert tokenizer.encode("the").tokens == ["the"]
    assert tokenizer.decode(tokenizer.encode(" the").ids) == " the"


DAMAGED: list[tuple[Metadata, str]] = [
    (_sentence_piece(scores=[0.0]), "C027"),
    (_sentence_piece(scores="x"), "C019"),
    (_sentence_piece(bos_token_id=10_000), "C036"),
    (_sentence_piece(bos_token_id=-1), "C036"),
    (_sentence_piece(token_type=[1]), "C027"),
    (_sentence_piece(tokens=["a", "a"]), "C027"),
    (_sentence_piece(add_bos_token=1), "C019"),
    (_byte_level("gpt-2", ["a zz"]), "C027"),
    (_byte_level("gpt-2", ["ab"]), "C027"),
    (_byte_level("gpt-2", MERGES, tokens=[1, 2]), "C019"),
]


@pytest.mark.parametrize(("metadata", "code"), DAMAGED)
def test_vocabulary_that_contradicts_itself(metadata: Metadata, code: str) -> None:
    assert codes_of(lambda: tokenizer_files(metadata)) == [code]


@pytest.mark.parametrize(("model", "pre"), [("bert", "x"), ("gpt2", "tekken"), ("t5", "gpt-2")])
def test_unknown_kind_is_left_out_with_a_warning(model: str, pre: str) -> None:
    files, warnings = tokenizer_files(_byte_level(pre, MERGES, model=model))
    assert files == {} and len(warnings) == 1 and model in warnings[0] and pre in warnings[0]


def test_no_tokenizer_at_all() -> None:
    files, warnings = tokenizer_files(Metadata({}, "f.gguf"))
    assert files == {} and "token ids" in warnings[0]
