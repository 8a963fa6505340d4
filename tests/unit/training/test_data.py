# SPDX-License-Identifier: Apache-2.0
"""Training text: what is read, what is refused, and the split by prompt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hspec_trt.errors import DrafterError, HspecError
from hspec_trt.training.data import held_out, read_conversations
from hspec_trt.training.vocab import choose_vocab, coverage
from tests.support.training import write_data

GOOD = {"id": "a", "prompt_ids": [1, 2], "response_ids": [3, 4]}


def _file(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_reads_lines(tmp_path: Path) -> None:
    path = _file(tmp_path / "d.jsonl", GOOD, GOOD | {"finish": "eos", "task": "t", "sampling": "greedy"})
    plain, ended = read_conversations(path, vocab_size=5, max_tokens=9)
    assert plain.token_ids == (1, 2, 3, 4)
    assert (plain.num_labels, ended.num_labels) == (4, 3)
    assert (ended.task, ended.sampling) == ("t", "greedy")


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[1]",
        {"id": "a", "prompt_ids": [1]},
        GOOD | {"response_ids": []},
        GOOD | {"prompt_ids": []},
        GOOD | {"response_ids": [5]},
        GOOD | {"response_ids": [-1]},
        GOOD | {"response_ids": [1.0]},
        GOOD | {"response_ids": [True]},
        GOOD | {"response_ids": 7},
        GOOD | {"id": "half of \ud83d"},
        "[" * 100_000,
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: object) -> None:
    path = _file(tmp_path / "d.jsonl", GOOD, line)
    with pytest.raises(DrafterError, match="line 2") as caught:
        read_conversations(path, vocab_size=5, max_tokens=9)
    assert caught.value.code == "D200"


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = _file(tmp_path / "d.jsonl", GOOD, GOOD)
    path.write_bytes(path.read_bytes() + json.dumps(GOOD | {"id": "?"}).encode().replace(b"?", b"\xff"))
    with pytest.raises(DrafterError, match=r"D200.*line 3"):
        read_conversations(path, vocab_size=5, max_tokens=9)


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(DrafterError, match=r"D200.*(Is a directory|No such file)"):
            read_conversations(path, vocab_size=5, max_tokens=9)


def test_what_is_shown_of_a_bad_line_is_short(tmp_path: Path) -> None:
    path = _file(tmp_path / "d.jsonl", GOOD | {"response_ids": ["x" * 1000]})
    with pytest.raises(DrafterError) as caught:
        read_conversations(path, vocab_size=5, max_tokens=9)
    assert len(str(caught.value)) < 200


def test_bad_lines_are_reported_together(tmp_path: Path) -> None:
    path = _file(tmp_path / "d.jsonl", *["x"] * 50)
    with pytest.raises(HspecError) as caught:
        read_conversations(path, vocab_size=5, max_tokens=9)
    assert len(caught.value.faults) == 10


def test_long_conversations_are_left_out(tmp_path: Path) -> None:
    path = _file(tmp_path / "d.jsonl", GOOD, GOOD | {"response_ids": [1] * 20})
    assert len(read_conversations(path, vocab_size=5, max_tokens=9)) == 1
    with pytest.raises(DrafterError, match="at most 3 tokens"):
        read_conversations(path, vocab_size=5, max_tokens=3)


def test_the_split_goes_by_prompt(tmp_path: Path) -> None:
    conversations = read_conversations(write_data(tmp_path / "d", rows=400), vocab_size=256, max_tokens=99)
    parts: dict[str, set[bool]] = {}
    for conversation in conversations:
        parts.setdefault(conversation.prompt_id, set()).add(held_out(conversation, share=0.25, seed=0))
    assert all(len(found) == 1 for found in parts.values())
    assert 0.15 < sum(True in found for found in parts.values()) / len(parts) < 0.35


def test_vocabulary_is_the_most_frequent_tokens_in_target_order(tmp_path: Path) -> None:
    lines = [GOOD | {"response_ids": [9, 9, 9, 4, 4, 7, 2]}, GOOD | {"response_ids": [9, 2, 30]}]
    conversations = read_conversations(_file(tmp_path / "d", *lines), vocab_size=31, max_tokens=99)
    assert choose_vocab(conversations, vocab_size=31, draft_vocab_size=3).tolist() == [2, 4, 9]
    assert choose_vocab(conversations, vocab_size=31, draft_vocab_size=4).tolist() == [2, 4, 7, 9]
    filled = choose_vocab(conversations, vocab_size=31, draft_vocab_size=7)
    assert filled.tolist() == [0, 1, 2, 4, 7, 9, 30]
    assert coverage(conversations, filled) == 1.0
    assert coverage(conversations, filled[:3]) == pytest.approx(0.2)
