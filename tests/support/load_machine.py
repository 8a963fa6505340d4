# SPDX-License-Identifier: Apache-2.0
"""Loads a compiled engine with the C++ runtime and prints what it told, in a process of its own.

python -m tests.support.load_machine LIBRARY ENGINE OPTIONS   (JSON object; prints the error's text, or "loads")
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.c_runtime import CError, CRuntime

ROOT = Path(__file__).resolve().parents[2]


def told_on(
    machine: Path, library: Path, engine: Path, options: Mapping[str, object], environment: Mapping[str, str]
) -> str:
    """What the C++ runtime tells of an engine.

    Args:
        machine: the stand-in's library (`tests.support.fake_gpu_build`).
    """
    paths = {"LD_LIBRARY_PATH": str(machine.parent), "HSPEC_TRT_TENSORRT_LIBRARY": str(machine)}
    command = [sys.executable, "-m", "tests.support.load_machine", str(library), str(engine), json.dumps(dict(options))]
    every = {**os.environ, **paths, "PYTHONPATH": str(ROOT), **environment}
    result = subprocess.run(command, env=every, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.removesuffix("\n")


def main(library: Path, engine: str, options: Mapping[str, object]) -> str:
    runtime = CRuntime(library)
    try:
        folder = runtime.open_folder(engine)
        runtime.free("engine", runtime.load_engine(folder, **options))
    except CError as error:
        return str(error)
    return "loads"


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])))
