# SPDX-License-Identifier: Apache-2.0
"""Opens a target in a process of its own that may map only so much more memory than its libraries take.

Run as ``python -m tests.support.limited PATH MEBIBYTES``: prints what `load_target` reports and the seconds it took,
and exits as the command line does: 2 for a fault, 0 for none.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """How the process ended."""

    exit_code: int
    report: str
    seconds: float


def load_limited(path: Path, mebibytes: int) -> Outcome:
    """Open `path` with `mebibytes` of address space beyond what Python and its libraries map."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.limited", str(path), str(mebibytes)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    *report, seconds = (done.stdout + done.stderr).splitlines() or [""]
    return Outcome(done.returncode, "\n".join(report), float(seconds) if done.returncode in (0, 2) else float("inf"))


def _main(path: str, mebibytes: str) -> int:
    from hspec_trt.checkpoint.target import load_target
    from hspec_trt.errors import HspecError

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = mapped + int(mebibytes) * (1 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    start, code = time.process_time(), 0
    try:
        load_target(Path(path))
    except HspecError as error:
        print(error)
        code = 2
    print(time.process_time() - start)
    return code


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
