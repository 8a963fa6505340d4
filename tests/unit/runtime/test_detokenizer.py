# SPDX-License-Identifier: Apache-2.0
"""Chunks put together are the whole decoding, for every split, kind of tokenizer and broken sequence of bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hspec_trt.runtime.detokenizer import REPLACEMENT, IncrementalDecoder, TextStream
from tests.support.tokenizers_toy import KINDS, byte_ids, ours

TOKENIZERS = {kind: ours(kind) for kind in KINDS}


def splits(ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    return [ids[a:b] for a, b in itertools.pairwise(edges)]


def chunks(kind: str, parts: list[list[int]]) -> list[str]:
    decoder = IncrementalDecoder(TOKENIZERS[kind])
    return [*(decoder.push(part) for part in parts), decoder.flush()]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_chunks_are_the_whole_decoding(kind: str, data: st.DataObject) -> None:
    size = KINDS[kind]().get_vocab_size(with_added_tokens=True)
    ids = data.draw(st.lists(st.integers(0, size + 1), max_size=24))
    cuts = data.draw(st.lists(st.integers(0, 24), max_size=12))
    assert "".join(chunks(kind, splits(ids, cuts))) == TOKENIZERS[kind].decode(ids)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_pieces_of_text_tokens_only(kind: str, data: st.DataObject) -> None:
    """Few ids, so that spaces, marks and byte runs meet each other often."""
    few = [1, 2, 3, 0xE4 + 1, 0xBD + 1, 0xA0 + 1, 257, 258, 260, 261, 264, 5, 8, 9]
    known = [token for token in few if TOKENIZERS[kind].has_text(token)]
    ids = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=16))
    assert "".join(chunks(kind, [[token] for token in ids])) == TOKENIZERS[kind].decode(ids)


@pytest.mark.parametrize("text", ["a😀b", "naïve 你好 😀😀", "e\u0301"])
def test_no_broken_character_in_any_chunk(text: str) -> None:
    """Case F8: a four-byte character over several tokens, split at every point, in steps of one to five tokens."""
    ids = byte_ids(text)
    for cuts in itertools.combinations(range(1, len(ids)), min(3, len(ids) - 1)):
        parts = chunks("byte_level", splits(ids, list(cuts)))
        assert "".join(parts) == text
        assert not any(REPLACEMENT in part for part in parts)


def test_cut_off_character_comes_out_at_the_end() -> None:
    ids = byte_ids("a😀")[:-1]
    parts = chunks("byte_level", [[token] for token in ids])
    assert parts[:-1] == ["a", "", "", ""]
    assert parts[-1] == REPLACEMENT


def test_cost_of_a_token_does_not_grow() -> None:
    class Counting:
        longest = 0

        def decode(self, ids: list[int]) -> str:
            self.longest = max(self.longest, len(ids))
            return TOKENIZERS["byte_level"].decode(ids)

        def has_text(self, token: int) -> bool:
            return True

        def is_byte(self, token: int) -> bool:
            return False

    counting = Counting()
    decoder = IncrementalDecoder(counting)
    for token in byte_ids("word " * 200):
        decoder.push([token])
    assert counting.longest <= 4


@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_stop_string_cuts_text_for_every_split(data: st.DataObject) -> None:
    text = data.draw(st.text(alphabet="ENDx 😀", max_size=16))
    stops = data.draw(
        st.lists(st.sampled_from(["END", "ND", "N", "x E", "NN", "😀😀"]), min_size=1, max_size=3, unique=True)
    )
    cuts = data.draw(st.lists(st.integers(0, 40), max_size=40))
    stream = TextStream(TOKENIZERS["byte_level"], stops)
    out = ""
    for part in splits(byte_ids(text), cuts):
        out += stream.push(part)
        if stream.stopped:
            break
    out += stream.flush()
    # The stop string that is complete first ends the text; of several complete at one character, the longest.
    ends = [(text.find(s) + len(s), text.find(s)) for s in stops if s in text]
    assert out == (text[: min(ends)[1]] if ends else text)
    assert stream.stopped == bool(ends)


def test_of_several_stop_strings_in_one_token_the_one_complete_first_counts() -> None:
    for stops in (("bc", "abcd"), ("abcd", "bc"), ("e", "bc"), ("bc", "c")):
        stream = TextStream(TOKENIZERS["byte_level"], stops)
        assert (stream.push(byte_ids("xabcdef")), stream.stop) == ("xa", "bc")


@pytest.mark.parametrize("pieces", [["xEND", "y"], ["xE", "ND", "y"], ["x", "E", "N", "D", "y"], ["xENDy"]])
def test_stop_string_over_tokens(pieces: list[str]) -> None:
    """Case F5: split as E/ND, over two steps, or inside one run."""
    stream = TextStream(TOKENIZERS["byte_level"], ("END",))
    out = [stream.push(byte_ids(piece)) for piece in pieces]
    assert "".join(out) + stream.flush() == "x"
    assert stream.stopped
    assert stream.stop == "END"


def test_possible_stop_is_held_back_and_released() -> None:
    stream = TextStream(TOKENIZERS["byte_level"], ("END",))
    assert [stream.push(byte_ids(c)) for c in "aENx"] == ["a", "", "", "ENx"]
    assert stream.push(byte_ids("E")) == ""
    assert stream.flush() == "E"
    assert not stream.stopped


def test_stop_string_in_a_byte_run_is_found_at_the_end() -> None:
    tokenizer = TOKENIZERS["byte_fallback"]
    stream = TextStream(tokenizer, ("é",))
    assert [stream.push([byte + 1]) for byte in "aé".encode()] == ["", "", ""]
    assert stream.flush() == "a"
    assert stream.stopped
