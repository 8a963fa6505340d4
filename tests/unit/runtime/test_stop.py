# SPDX-License-Identifier: Apache-2.0
"""The earliest of end token, stop string and length wins, wherever in an accepted run it falls."""

from __future__ import annotations

import pytest

from hspec_trt.runtime.detokenizer import TextStream
from hspec_trt.runtime.stop import Ending, StopRules, find_end
from tests.support.tokenizers_toy import byte_ids, ours

STOP, EOS = 99, 2
RULES = StopRules(frozenset({EOS}), frozenset({STOP}))


@pytest.mark.parametrize("budget", range(1, 8))
@pytest.mark.parametrize("position", range(6))
def test_stop_token_at_every_position_and_budget(position: int, budget: int) -> None:
    """Case F1."""
    run = [10, 11, 12, 13, 14]
    run[position:position] = [STOP]
    expected = Ending(position + 1, "stop_token") if position < budget else Ending(budget, "length")
    assert find_end(run, budget, RULES) == expected


@pytest.mark.parametrize("slot", range(5))
def test_eos_at_every_draft_slot_and_as_bonus(slot: int) -> None:
    """Case F2: a run of four drafts and the bonus token."""
    run = [10, 11, 12, 13, 14]
    run[slot] = EOS
    assert find_end(run, 100, RULES) == Ending(slot + 1, "eos")


def test_run_without_an_end_goes_on() -> None:
    assert find_end([10, 11], 3, RULES) == Ending(2)
    assert find_end([10, 11], 2, RULES) == Ending(2, "length")
    assert find_end([], 2, RULES) == Ending(0)


def test_ignored_eos_is_a_token_like_others() -> None:
    assert find_end([10, EOS, 11], 9, StopRules(frozenset(), frozenset())) == Ending(3)


def text(stop: str = "END") -> TextStream:
    return TextStream(ours("byte_level"), (stop,))


@pytest.mark.parametrize("budget", range(1, 8))
def test_stop_string_against_length(budget: int) -> None:
    run = byte_ids("aENDzz")
    expected = Ending(4, "stop_string") if budget >= 4 else Ending(budget, "length")
    assert find_end(run, budget, RULES, text()) == expected


def test_stop_string_before_and_after_an_end_token() -> None:
    before = [*byte_ids("aEND"), EOS]
    after = [*byte_ids("aEN"), EOS, *byte_ids("D")]
    rules = StopRules(frozenset({EOS}))
    ids = set(byte_ids("aEND"))
    assert EOS not in ids
    assert find_end(before, 9, rules, text()) == Ending(4, "stop_string")
    assert find_end(after, 9, rules, text()) == Ending(4, "eos")


def test_stop_string_over_two_steps() -> None:
    stream = text()
    assert find_end(byte_ids("aE"), 9, RULES, stream) == Ending(2)
    assert find_end(byte_ids("NDx"), 7, RULES, stream) == Ending(2, "stop_string")


def test_stop_string_that_appears_with_the_end_of_a_byte_run() -> None:
    """Byte tokens are text only when their run ends: here the length ends it."""
    run = [byte + 1 for byte in "é".encode()]
    stream = TextStream(ours("byte_fallback"), ("é",))
    assert find_end(run, 2, StopRules(), stream) == Ending(2, "stop_string")


def test_an_end_token_that_is_also_a_stop_id_is_an_end_token() -> None:
    assert find_end([7, 5, 8], 9, StopRules(frozenset({5}), frozenset({5, 8}))) == Ending(2, "eos")
