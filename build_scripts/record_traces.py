# SPDX-License-Identifier: Apache-2.0
"""Records the traces that hold the C++ runtime to the Python one: tests/golden/traces, on the CPU backend.

    python build_scripts/record_traces.py [CASE ...]

Run it after a change of the runtime's policy, and look at what has changed before committing it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.trace_recorder import Recorder  # noqa: E402
from tests.support.trace_scripts import CASES  # noqa: E402

TRACES = ROOT / "tests" / "golden" / "traces"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"default: all of {', '.join(CASES)}")
    names = parser.parse_args().cases or list(CASES)
    TRACES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder))
        for name in names:
            trace, path = recorder.record(name), TRACES / f"{name}.safetensors"
            trace.write(path)
            print(
                f"{name}: {len(trace.session.inputs)} steps, {len(trace.answers)} answers, {path.stat().st_size} bytes"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
