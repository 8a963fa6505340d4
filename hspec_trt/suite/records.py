# SPDX-License-Identifier: Apache-2.0
"""What is kept of a comparison: its settings and one line per answer, so that an interrupted one goes on.

Owns the two files. What the lines mean for a drafter is `hspec_trt.suite.figures`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from hspec_trt.bundle import refusals_told, write_atomic
from hspec_trt.errors import RequestError


@dataclass(frozen=True)
class Record:
    """One answer.

    Attributes:
        drafter: name of the row in the table.
        steps, emitted: decode steps and the tokens they emitted; the token of the prompt's own pass is not among them.
        offered, accepted: per position, drafts verified and accepted.
        seconds: wall time of the decode steps; with several prompts at once it means nothing.
    """

    drafter: str
    task: str
    key: str
    prompt_tokens: int
    new_tokens: int
    finish: str
    steps: int
    emitted: int
    offered: tuple[int, ...]
    accepted: tuple[int, ...]
    seconds: float


Rounds = tuple[tuple[float, float], ...]
"""Of each round the medians of a step's seconds: in the engine's graph, and outside it."""


@dataclass(frozen=True)
class Timing:
    """Seconds of a decode step with one row; the kinds take turns in a round.

    Attributes:
        plain: drafting off: the target for one token.
        verify: the target for G + 1 tokens, the drafter not run.
        full: the same and the drafter's pass.
        load: runnable processes at that time; much above 1 and the figures say little.
    """

    plain: Rounds
    verify: Rounds
    full: Rounds
    load: float


_ANEW: Final = "Give another --output or delete it"


class ResultFolder:
    """The folder that a comparison fills: settings.json, engines.json, records.jsonl, timing.json."""

    def __init__(self, path: Path, settings: dict[str, object]) -> None:
        """Open, or start, the results of these settings.

        Raises:
            RequestError: R501 where the folder holds those of others, or something else.
            BuildError: B004 or B005 where it cannot be written.
        """
        self.path = path
        file, wanted = path / "settings.json", json.loads(json.dumps(settings))
        with refusals_told(path):
            path.mkdir(parents=True, exist_ok=True)
            if not file.exists() and any(path.iterdir()):
                raise RequestError("R501", f"{path} holds no results of ours", needed="a new folder", fix=_ANEW)
        found = self._read("settings.json") or wanted
        differing = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        if differing:
            raise RequestError("R501", f"results with other {', '.join(differing)}", where=str(file), fix=_ANEW)
        self._write("settings.json", wanted)

    def claim(self, engines: Mapping[str, str]) -> None:
        """Note which engine stands behind a name; more names may come later.

        Args:
            engines: name to identity.

        Raises:
            RequestError: R501 where the results under a name are those of another engine.
        """
        found = self._read("engines.json")
        for name, identity in engines.items():
            if found.get(name, identity) != identity:
                file = str(self.path / "engines.json")
                raise RequestError("R501", f"results of another engine named {name!r}", where=file, fix=_ANEW)
        self._write("engines.json", {**found, **engines})

    def _read(self, name: str) -> dict[str, Any]:
        """One of the JSON files; empty where it is not there."""
        file = self.path / name
        if not file.exists():
            return {}
        with _readable(file):
            return dict(json.loads(file.read_bytes()))

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        with refusals_told(self.path / name):
            write_atomic(self.path / name, json.dumps(content, indent=1, sort_keys=True).encode() + b"\n")

    def records(self) -> list[Record]:
        """What is there; a line cut short by a crash is dropped."""
        file = self.path / "records.jsonl"
        with _readable(file):
            lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
            rows = [json.loads(line) for line in lines]
            return [Record(**row | {name: tuple(row[name]) for name in ("offered", "accepted")}) for row in rows]

    def add(self, record: Record) -> None:
        """Keep one more; it is on the disk when this returns."""
        file = self.path / "records.jsonl"
        whole = file.exists() and file.read_bytes()
        if whole and not whole.endswith(b"\n"):
            file.write_bytes(whole[: whole.rfind(b"\n") + 1])
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(record)) + "\n")
            out.flush()
            os.fsync(out.fileno())

    def timings(self) -> dict[str, Timing]:
        """Step times by drafter."""
        rows = self._read("timing.json")
        with _readable(self.path / "timing.json"):
            return {name: _timing(**row) for name, row in rows.items()}

    def add_timing(self, drafter: str, timing: Timing) -> None:
        """Keep a drafter's step times."""
        self._write("timing.json", {name: asdict(row) for name, row in (self.timings() | {drafter: timing}).items()})


def _timing(load: float, **kinds: list[tuple[float, float]]) -> Timing:
    return Timing(load=load, **{kind: tuple((inside, outside) for inside, outside in kinds[kind]) for kind in kinds})


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """A file that was edited or cut, as a fault (R501)."""
    try:
        yield
    except (ValueError, TypeError, KeyError) as error:
        raise RequestError("R501", "results that cannot be read", where=str(file), fix=_ANEW) from error
