# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of an engine folder."""

from __future__ import annotations

import pytest

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


def test_lengths_saved_in_the_file_do_not_cut_prompts() -> None:
    made = byte_level()
    made.enable_truncation(4)
    made.enable_padding(length=8)
    assert Tokenizer(made.to_str().encode()).encode("abcdefgh") == byte_ids("abcdefgh")
