# SPDX-License-Identifier: Apache-2.0
"""Builds libhspec_trt_runtime.so, the C++ runtime, and installs it with its headers and CMake package.

    python build_scripts/build_runtime.py [--preset release|address|thread] [--prefix FOLDER] [--target NAME ...]

Owns where headers are found: as build_plugins.py for CUDA and TensorRT; TENSORRT_RTX_INCLUDE_DIR for TensorRT for RTX.
Without them the library builds as well, and runs no compiled engine. Needs CMake and a C++17 compiler, and no GPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from build_scripts.build_plugins import CUDA, TENSORRT, Headers  # noqa: E402

RUNTIME = ROOT / "runtime_cpp"
LIBRARY_NAME = "libhspec_trt_runtime.so"
PRESETS = ("release", "address", "thread")


def header_options() -> list[str]:
    """CMake options with the header folders that there are; says which are missing."""
    options = []
    for name, headers in (("TENSORRT", TENSORRT), ("CUDA", CUDA)):
        folder = _folder_of(headers)
        options += [f"-D{name}_INCLUDE_DIR={folder}"] if folder else []
    if rtx := os.environ.get("TENSORRT_RTX_INCLUDE_DIR"):
        options.append(f"-DTENSORRT_RTX_INCLUDE_DIR={rtx}")
    return options


def _folder_of(headers: Headers) -> Path | None:
    try:
        return headers.folder()
    except SystemExit as missing:
        if os.environ.get(headers.variable):
            raise  # asked for, and not there
        print(f"warning: {missing}; the library will run no compiled engine", file=sys.stderr)
        return None


def build(preset: str, build_dir: Path, *, jobs: int, targets: Sequence[str] = (), defines: Sequence[str] = ()) -> Path:
    """Configure and compile; returns the library."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = [*header_options(), *(f"-D{define}" for define in defines)]
    _run(["cmake", "--preset", preset, "-B", str(build_dir), *generator, *options])
    chosen = ["--target", *targets] if targets else []
    _run(["cmake", "--build", str(build_dir), "--parallel", str(jobs), *chosen])
    return build_dir / LIBRARY_NAME


def install(build_dir: Path, prefix: Path) -> None:
    """Put library, headers and CMake package below `prefix`."""
    _run(["cmake", "--install", str(build_dir), "--prefix", str(prefix)])


def _run(command: Sequence[str]) -> None:
    if subprocess.run(command, cwd=RUNTIME, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(command)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="release", help="address and thread: with sanitizers")
    parser.add_argument("--build-dir", type=Path, help="default: runtime_cpp/build/PRESET")
    parser.add_argument("--prefix", type=Path, help="install here as well")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at a time")
    parser.add_argument("--target", nargs="+", default=(), help="build these CMake targets only")
    parser.add_argument("--define", nargs="+", default=(), metavar="NAME=VALUE", help="further CMake options")
    options = parser.parse_args()
    build_dir = (options.build_dir or RUNTIME / "build" / options.preset).resolve()
    library = build(options.preset, build_dir, jobs=options.jobs, targets=options.target, defines=options.define)
    if options.prefix:
        install(build_dir, options.prefix.resolve())
    print(library)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
