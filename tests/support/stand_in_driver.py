# SPDX-License-Identifier: Apache-2.0
"""Builds a library in place of NVIDIA's driver, for a process without a GPU."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Sequence
from pathlib import Path

from build_scripts.build_plugins import CUDA, TENSORRT

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "libcuda.so.1"


def build_driver(sources: Path, build: Path, *, includes: Sequence[Path] = (), options: Sequence[str] = ()) -> Path:
    """The library, named as the driver is; its folder goes on LD_LIBRARY_PATH of a process of its own.

    Args:
        sources: folder of C++ files.
        build: gets the library; only one process builds there at a time.
    """
    build.mkdir(parents=True, exist_ok=True)
    library = build / LIBRARY
    command = ["g++", "-std=c++17", "-shared", "-fPIC", *options, f"-Wl,-soname,{LIBRARY}", "-o", str(library)]
    command += [f"-I{folder}" for folder in (*includes, sources, ROOT / "plugins" / "include")]
    command += [f"-isystem{TENSORRT.folder()}", f"-isystem{CUDA.folder()}"]
    with (build / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([*command, *map(str, sorted(sources.glob("*.cpp"))), "-ldl"], check=True)
    return library
