# SPDX-License-Identifier: Apache-2.0
"""Training text: conversations as token ids, one JSON object a line, split into parts by prompt.

Owns the file's format and the split; knows no model but its vocabulary size.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from hspec_trt.errors import DrafterError, Faults

MAX_FAULTS = 10
"""Bad lines that are reported before reading stops."""


@dataclass(frozen=True)
class Conversation:
    """A prompt and the target's own response to it.

    Attributes:
        prompt_id: names the prompt; conversations with the same one always fall in the same part.
        task, sampling: what sort of prompt it is and how the response was drawn; only to group figures.
        ended: the response closes with the end token, so nothing follows it.
    """

    prompt_id: str
    task: str
    sampling: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    ended: bool

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Prompt and response."""
        return self.prompt_ids + self.response_ids

    @property
    def num_labels(self) -> int:
        """Positions of the sequence whose successor is worth learning: all, but for an end token's."""
        return len(self.token_ids) - int(self.ended)


def read_conversations(path: Path, *, vocab_size: int, max_tokens: int) -> list[Conversation]:
    """Read a file of JSON lines: ``id``, ``prompt_ids``, ``response_ids``; optional ``task``, ``sampling``, ``finish``.

    Args:
        max_tokens: longer conversations are left out.

    Raises:
        DrafterError: D200 for each bad line (ten at most), or for a file that cannot be read or has no usable line.
    """
    conversations: list[Conversation] = []
    faults = Faults()
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            with faults.collect():
                conversations.append(_parse(line, where=f"{path.name}, line {number}", vocab_size=vocab_size))
            if len(faults.found) == MAX_FAULTS:
                break
    faults.raise_any()
    kept = [conversation for conversation in conversations if len(conversation.token_ids) <= max_tokens]
    if not kept:
        raise DrafterError(
            "D200", f"no conversation of at most {max_tokens} tokens", where=path.name, fix="Raise --max-tokens"
        )
    return kept


def _opened(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        found = f"{error.strerror}: {path}"
        raise DrafterError("D200", found, needed="a file of JSON lines", fix="Give another --data") from error


def held_out(conversation: Conversation, *, share: float, seed: int) -> bool:
    """True where the conversation belongs to the evaluation part; a function of prompt id and seed only."""
    digest = hashlib.sha256(f"{seed}/{conversation.prompt_id}".encode()).digest()
    return int.from_bytes(digest[:8], "little") < share * 2**64


def _parse(line: str, *, where: str, vocab_size: int) -> Conversation:
    try:
        row = json.loads(line)
        prompt_ids, response_ids = tuple(row["prompt_ids"]), tuple(row["response_ids"])
        prompt_id, finish, task = str(row["id"]), str(row.get("finish", "")), str(row.get("task", ""))
        sampling = str(row.get("sampling", ""))
        "".join((prompt_id, finish, task, sampling)).encode()  # not so for bytes that are no UTF-8, nor half characters
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DrafterError(
            "D200",
            f"unreadable line: {type(error).__name__} {error}",
            needed='{"id": ..., "prompt_ids": [...], "response_ids": [...]}',
            where=where,
        ) from error
    bad = [t for t in prompt_ids + response_ids if type(t) is not int or not 0 <= t < vocab_size]
    if bad or not prompt_ids or not response_ids:
        found = f"token id {repr(bad[0])[:80]}" if bad else "an empty prompt or response"
        raise DrafterError("D200", found, needed=f"ids in [0, {vocab_size})", where=where)
    return Conversation(prompt_id, task, sampling, prompt_ids, response_ids, finish == "eos")
