# SPDX-License-Identifier: Apache-2.0
"""Prompts of a suite: what is read, what is refused and by which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hspec_trt.errors import HspecError, RequestError
from hspec_trt.suite.prompts import read_suite

GOOD = {"id": "a", "task": "qa", "messages": [{"role": "user", "content": "why"}]}


def suite(folder: Path, *lines: object) -> Path:
    folder.mkdir()
    texts = [line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode() for line in lines]
    (folder / "qa.jsonl").write_bytes(b"".join(text + b"\n" for text in texts))
    return folder


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    """JSON may hold the other characters that end lines elsewhere."""
    text = "a\u2028b\u0085c\u2029d"
    folder = suite(tmp_path / "s", GOOD, GOOD | {"id": "b", "messages": [{"role": "user", "content": text}]})
    assert [prompt.messages[0]["content"] for prompt in read_suite(folder)["qa"]] == ["why", text]


def test_prompts_come_by_task(tmp_path: Path) -> None:
    tool = GOOD | {"id": "b", "task": "tools", "tools": [{"type": "function"}]}
    found = read_suite(suite(tmp_path / "s", GOOD, tool))
    assert list(found) == ["qa", "tools"]
    assert found["qa"][0].messages == ({"role": "user", "content": "why"},)
    assert (found["qa"][0].tools, found["tools"][0].tools) == ((), ({"type": "function"},))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "JSONDecodeError"),
        (b"{", "JSONDecodeError"),
        (b"[1]", "TypeError"),
        (b'{"id": "\xff"}', "UnicodeDecodeError"),
        (b"[" * 100_000, "RecursionError"),
        ({"id": "b", "task": "qa"}, "KeyError 'messages'"),
        (GOOD | {"messages": []}, "no messages"),
        (GOOD | {"messages": ["why"]}, "TypeError"),
        (GOOD | {"messages": [{"role": "user", "content": None}]}, "no text"),
        (GOOD | {"messages": [{"role": "user", "content": [{"type": "text", "text": "why"}]}]}, "no text"),
        (GOOD | {"id": "b", "tools": "f"}, "no object"),
        (GOOD | {"id": "b", "tools": {"name": "f"}}, "no object"),
        (GOOD | {"id": "b", "tools": 7}, "TypeError"),
        (GOOD, "id 'a' is there twice"),
    ],
)
def test_bad_lines_are_refused(line: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=rf"R500.*{said}.*qa\.jsonl"):
        read_suite(suite(tmp_path / "s", GOOD, line))


def test_bad_lines_are_reported_together_but_not_all(tmp_path: Path) -> None:
    with pytest.raises(HspecError) as caught:
        read_suite(suite(tmp_path / "s", *[b"{"] * 50))
    assert len(caught.value.faults) == 10


def test_a_folder_without_prompts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for folder in (tmp_path, suite(tmp_path / "s")):
        with pytest.raises(RequestError, match=r"R500"):
            read_suite(folder)
