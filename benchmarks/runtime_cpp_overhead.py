# SPDX-License-Identifier: Apache-2.0
"""Time of the C++ runtime's own work per step: everything but the engine, at 1 to 128 decode rows.

Builds and runs runtime_cpp/benchmarks/step_overhead.cpp: ``python -m benchmarks.runtime_cpp_overhead``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from build_scripts.build_runtime import RUNTIME, build


def measure(build_dir: Path, steps: int) -> list[dict[str, Any]]:
    """Figures of each case, microseconds."""
    build("release", build_dir, jobs=1, targets=("step_overhead",), defines=("HSPEC_TRT_RUNTIME_TESTS=ON",))
    result = subprocess.run([build_dir / "step_overhead", str(steps)], capture_output=True, text=True, check=True)
    figures: list[dict[str, Any]] = json.loads(result.stdout)
    return figures


def optimisation(build_dir: Path) -> str:
    """The build type and its compiler options, as CMake has them."""
    cache = (build_dir / "CMakeCache.txt").read_text(encoding="utf-8")
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache, re.MULTILINE)
    assert kind, "CMake's cache names no build type"
    names = ("CMAKE_CXX_FLAGS", f"CMAKE_CXX_FLAGS_{kind[1].upper()}")
    flags = [re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE) for name in names]
    return " ".join([kind[1], *(flag[1] for flag in flags if flag and flag[1])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--build-dir", type=Path, default=RUNTIME / "build" / "release")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = measure(args.build_dir.resolve(), args.steps)
    if args.json:
        print(json.dumps(figures))
        return
    print(f"compiled with {optimisation(args.build_dir.resolve())}")
    print("rows  waiting  streaming  drafts  median us  p90 us")
    for r in figures:
        how = f"{r['rows']:4}  {r['waiting']:7}  {r['streaming']!s:9}  {r['drafts']:6}"
        print(f"{how}  {r['median_us']:9.1f}  {r['p90_us']:6.1f}")


if __name__ == "__main__":
    main()
