# SPDX-License-Identifier: Apache-2.0
"""Prompts by task: a folder of JSON lines, one file a task. Owns the file's form; knows no engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hspec_trt.errors import Faults, RequestError

MAX_FAULTS = 10
"""Bad lines that are reported before reading stops."""


@dataclass(frozen=True)
class SuitePrompt:
    """One conversation that the model is to go on with.

    Attributes:
        key: unique over the suite.
        messages: ``{"role": .., "content": ..}``, the last one the user's.
        tools: function schemas for the chat template; mostly none.
    """

    key: str
    task: str
    messages: tuple[Mapping[str, str], ...]
    tools: tuple[Mapping[str, object], ...] = ()


def read_suite(folder: Path) -> dict[str, list[SuitePrompt]]:
    """Prompts by task, in the order of files and lines: ``id``, ``task``, ``messages``, optional ``tools``.

    Raises:
        RequestError: R500 for each bad line (ten at most), or for a folder without prompts.
    """
    faults, tasks, keys = Faults(), dict[str, list[SuitePrompt]](), set[str]()
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                with faults.collect():
                    prompt = _parse(line, where=f"{path.name}, line {number}")
                    if prompt.key in keys:
                        raise RequestError("R500", f"id {prompt.key[:80]!r} is there twice", where=path.name)
                    keys.add(prompt.key)
                    tasks.setdefault(prompt.task, []).append(prompt)
                if len(faults.found) == MAX_FAULTS:
                    faults.raise_any()
    faults.raise_any()
    if not tasks:
        raise RequestError("R500", "no prompts", needed="*.jsonl files", where=str(folder), fix="Give another --suite")
    return tasks


def _parse(line: bytes, *, where: str) -> SuitePrompt:
    try:
        row = json.loads(line)
        messages = tuple({"role": m["role"], "content": m["content"]} for m in row["messages"])
        prompt = SuitePrompt(str(row["id"]), str(row["task"]), messages, tuple(row.get("tools") or ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        needed = '{"id": .., "task": .., "messages": [{"role": .., "content": ..}]}'
        found = f"unreadable line: {type(error).__name__} {error}"
        raise RequestError("R500", found, needed=needed, where=where) from error
    if not messages:
        raise RequestError("R500", "no messages", needed="at least the user's", where=where)
    if not all(isinstance(text, str) for message in messages for text in message.values()):
        raise RequestError("R500", "a role or content that is no text", needed="strings", where=where)
    if not all(isinstance(tool, dict) for tool in prompt.tools):
        raise RequestError("R500", "a tool that is no object", needed="function schemas", where=where)
    return prompt
