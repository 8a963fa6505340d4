# SPDX-License-Identifier: Apache-2.0
"""A trace of the steps for Chrome's viewer (about:tracing, Perfetto): a JSON array that is whole after every write.

It knows the file and the format; what is worth an event is the step loop's business. Format: "Trace Event Format",
JSON array form (complete events ``X``, counters ``C``, asynchronous pairs ``b`` and ``e``, metadata ``M``).
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hspec_trt.errors import LoadError

_LOG: Final = logging.getLogger(__name__)
_END: Final = b"\n]\n"
Arguments = Mapping[str, int | float | str]


@dataclass(frozen=True)
class Span:
    """Something that took time; `start` and `end` are seconds of ``time.monotonic``."""

    name: str
    start: float
    end: float
    arguments: Arguments = field(default_factory=dict)


class Trace:
    """Writes a trace file.

    The closing bracket is written with every batch of events and overwritten by the next one, in one system call, so
    that the file can be read while it grows and after the process was killed.

    Args:
        path: replaced where it exists. Time 0 in the viewer is when it was opened.

    Raises:
        LoadError: L037, the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._origin = path, time.monotonic()
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            os.pwrite(self._file, b"[" + _END, 0)
        except OSError as error:
            raise LoadError("L037", f"the trace cannot be written: {error.strerror}", where=str(path)) from error
        self._size = 1
        name = {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "hspec_trt"}}
        thread = {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "steps"}}
        self._write([name, thread])

    def step(self, spans: Iterable[Span], counters: Mapping[str, Arguments]) -> None:
        """Write the spans of one step, outer ones first, and where the counters stood at the end of the first."""
        events: list[dict[str, object]] = []
        for span in spans:
            micros = round((span.end - span.start) * 1e6, 3)
            events.append(self._event(span.name, "X", span.start) | {"dur": micros, "args": span.arguments})
        now = events[0]["ts"]
        events += [
            {"name": name, "ph": "C", "pid": 1, "tid": 1, "ts": now, "args": values}
            for name, values in counters.items()
        ]
        self._write(events)

    def answer(self, number: int, span: Span) -> None:
        """Write one answer's life, as a track of its own."""
        both = {"cat": "answer", "id": number}
        begin = self._event(span.name, "b", span.start) | both | {"args": span.arguments}
        self._write([begin, self._event(span.name, "e", span.end) | both])

    def close(self) -> None:
        """Close the file; writing goes on to do nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _event(self, name: str, phase: str, seconds: float) -> dict[str, object]:
        return {"name": name, "ph": phase, "pid": 1, "tid": 1, "ts": round((seconds - self._origin) * 1e6, 3)}

    def _write(self, events: list[dict[str, object]]) -> None:
        if self._file < 0:
            return
        lines = [json.dumps(event, separators=(",", ":")).encode() for event in events]
        data = (b",\n" if self._size > 1 else b"\n") + b",\n".join(lines)
        try:
            if os.pwrite(self._file, data + _END, self._size) == len(data) + len(_END):
                self._size += len(data)
                return
            fault = "no space left"
        except OSError as error:
            fault = error.strerror or str(error)
        self._give_up(fault)

    def _give_up(self, fault: str) -> None:
        """A full disk ends the trace where it was whole, never the serving."""
        _LOG.warning("the trace %s ends here: %s", self._path, fault)
        try:
            os.ftruncate(self._file, self._size)
            os.pwrite(self._file, _END, self._size)
        except OSError as error:
            _LOG.warning("the trace %s has no end: %s", self._path, error.strerror)
        self.close()
