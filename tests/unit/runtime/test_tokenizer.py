# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of an engine folder."""

from __future__ import annotations

import pytest
import tokenizers

from hspec_trt.errors import LoadError, RequestError
from hspec_trt.runtime.tokenizer import Tokenizer
from tests.support.tokenizers_toy import KINDS, SPECIAL, byte_ids, byte_level, ours


def test_round_trip_and_special_tokens() -> None:
    tokenizer = ours("byte_level")
    end = byte_level().token_to_id(SPECIAL)
    assert tokenizer.decode([*tokenizer.encode("hé END"), end]) == "hé END"
    assert tokenizer.encode(f"a{SPECIAL}") == [*byte_ids("a"), end]
    assert not tokenizer.has_text(end)
    assert not tokenizer.has_text(10_000)
    assert tokenizer.has_text(0)


def test_byte_tokens_only_where_the_decoder_joins_them() -> None:
    assert ours("byte_fallback").is_byte(0x41 + 1)
    assert not any(ours(kind).is_byte(0x41 + 1) for kind in KINDS if kind != "byte_fallback")


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"\xff\xfe", b'{"model": {"type": "Unknown"}}'])
def test_unreadable_file_is_a_load_fault(data: bytes) -> None:
    with pytest.raises(LoadError) as caught:
        Tokenizer(data)
    assert caught.value.code == "L020"


def test_text_that_is_not_unicode_ends_one_request() -> None:
    with pytest.raises(RequestError) as caught:
        ours("byte_level").encode("\ud800")
    assert caught.value.code == "R105"


def test_least_tokens_never_exceed_those_of_the_text() -> None:
    tokenizer = ours("byte_level")
    for text in ("", "a", "hé END" * 9, " " * 500, SPECIAL * 7, "\x00\x7f😀" * 40, "\n\n  \t" * 30):
        assert tokenizer.least_tokens(text) <= len(tokenizer.encode(text))
    assert tokenizer.least_tokens("x" * 1_000_000) > 1000


def test_no_bound_where_text_may_vanish() -> None:
    made = byte_level()
    made.normalizer = tokenizers.normalizers.Strip()
    assert Tokenizer(made.to_str().encode()).least_tokens("x" * 1_000_000) == 0
    eager = byte_level()
    eager.add_special_tokens([tokenizers.AddedToken("<eat>", rstrip=True, special=True)])
    assert Tokenizer(eager.to_str().encode()).least_tokens("x" * 1_000_000) == 0
    assert ours("byte_fallback").least_tokens("x" * 1_000_000) == 0


def test_lengths_saved_in_the_file_do_not_cut_prompts() -> None:
    made = byte_level()
    made.enable_truncation(4)
    made.enable_padding(length=8)
    assert Tokenizer(made.to_str().encode()).encode("abcdefgh") == byte_ids("abcdefgh")
