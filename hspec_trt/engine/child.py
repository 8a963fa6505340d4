# SPDX-License-Identifier: Apache-2.0
"""Runs the build's child process and turns every way in which it can end into a result or an error.

Owns environment, pipes and exit codes. It does not know what a job means.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from hspec_trt.engine.job import EVENT, Done, Event, Failed
from hspec_trt.errors import BuildError, HspecError, LoadError

WORKER: Final = (sys.executable, "-m", "hspec_trt.engine.worker")
TOLD_ERRORS: Final = 3
"""TensorRT's messages that an error repeats; all stand in the log."""

_ALLOCATOR: Final = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_ARENA_MAX": "2"}
"""For glibc: buffers of a megabyte go back to the system when they are freed, and threads share their heaps."""
_FAMILIES: Final[dict[str, type[HspecError]]] = {"B": BuildError, "L": LoadError}
_SIGNAL_MEANING: Final = {
    signal.SIGKILL: "killed, most likely by the system for lack of memory",
    signal.SIGABRT: "TensorRT aborted",
    signal.SIGSEGV: "TensorRT crashed",
    signal.SIGBUS: "a mapped file went away, or TensorRT crashed",
    signal.SIGTERM: "stopped from outside",
}


def run_child(
    job_file: Path,
    library_folder: Path,
    log: Path,
    on_event: Callable[[Event], None],
    command: Sequence[str] = WORKER,
) -> Done:
    """Run the child to its end.

    Args:
        library_folder: goes first on ``LD_LIBRARY_PATH``.
        log: takes the child's standard error.
        on_event: called for each event as it comes.
        command: what to run, with the job file as its argument.

    Raises:
        BuildError: B040, B041 and others that the child tells; B042, it died.
        LoadError: L002, the plugin library does not fit.
    """
    paths = [str(library_folder), os.environ.get("LD_LIBRARY_PATH", "")]
    modules = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {
        **_ALLOCATOR,
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths)),
        "PYTHONPATH": os.pathsep.join(filter(None, modules)),
    }
    last: Event | None = None
    with (
        log.open("ab") as errors,
        subprocess.Popen([*command, str(job_file)], stdout=subprocess.PIPE, stderr=errors, env=environment) as child,
    ):
        try:
            for line in child.stdout or ():
                last = _event(line, log)
                on_event(last)
        except BaseException:
            child.kill()
            raise
    return _result(last, child.returncode, log)


def _event(line: bytes, log: Path) -> Event:
    try:
        return EVENT.validate_json(line)
    except ValidationError as error:
        raise BuildError("B042", f"the build process said {line!r}", needed="an event", where=str(log)) from error


def _result(last: Event | None, code: int, log: Path) -> Done:
    if isinstance(last, Failed):
        family = _FAMILIES.get(last.code[:1], BuildError)
        told = "; TensorRT says: " + " | ".join(last.errors[-TOLD_ERRORS:]) if last.errors else ""
        raise family(last.code, last.found + told, where=f"log: {log}")
    if isinstance(last, Done) and code == 0:
        return last
    raise BuildError("B042", f"the build process ended early: {_death(code)}", where=f"log: {log}", fix=_advice(code))


def _death(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    number = signal.Signals(-code)
    return f"{number.name}, {_SIGNAL_MEANING.get(number, 'a signal')}"


def _advice(code: int) -> str:
    if code == -signal.SIGKILL:
        return "Free memory or build on a larger machine"
    return "The end of the log tells what TensorRT was doing"
