# SPDX-License-Identifier: Apache-2.0
"""Builds libhspec_trt_plugins.so and puts it where the package looks for it (hspec_trt/lib).

    python build_scripts/build_plugins.py [--preset release|no-kernels|sanitize] [--output FOLDER]

Owns where headers are found: TENSORRT_INCLUDE_DIR and CUDA_INCLUDE_DIR, the system's, else those that the PyPI packages
kernel-lens (`pip install --no-deps kernel-lens`) and triton carry. Needs CMake and a C++17 compiler, and no GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from build_scripts.kernel_table import write_header  # noqa: E402
from hspec_trt.native import LIBRARY_NAME, PACKAGED_LIBRARY  # noqa: E402

PLUGINS = ROOT / "plugins"
GENERATED = PLUGINS / "src" / "generated"
PRESETS = ("release", "no-kernels", "sanitize")


@dataclass(frozen=True)
class Headers:
    """Where a set of headers may lie.

    Attributes:
        file: one of them.
        variable: environment variable with their folder, looked at first.
        system: folders of the system.
        package: PyPI package that carries them, and the folder inside it; needs only to be installed.
        remedy: how to get them.
    """

    file: str
    variable: str
    system: tuple[str, ...]
    package: tuple[str, str]
    remedy: str

    def folder(self) -> Path:
        """The folder that holds them.

        Raises:
            SystemExit: there is none, or the environment names a wrong one.
        """
        asked = os.environ.get(self.variable)
        name, inside = self.package
        spec = importlib.util.find_spec(name)
        packaged = [Path(place) / inside for place in (spec.submodule_search_locations or [])] if spec else []
        for folder in [Path(asked)] if asked else [*map(Path, self.system), *packaged]:
            if (folder / self.file).is_file():
                return folder
        raise SystemExit(f"no {self.file}{f' in {self.variable}={asked}' if asked else ''}: {self.remedy}")


TENSORRT = Headers(
    "NvInferRuntime.h",
    "TENSORRT_INCLUDE_DIR",
    ("/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu", "/usr/local/tensorrt/include"),
    ("kernel_lens", "include/tensorrt"),
    "set TENSORRT_INCLUDE_DIR, install libnvinfer-headers-dev, or pip install --no-deps kernel-lens",
)
CUDA = Headers(
    "cuda_runtime_api.h",
    "CUDA_INCLUDE_DIR",
    ("/usr/local/cuda/include", "/usr/local/cuda/targets/x86_64-linux/include", "/usr/include"),
    ("triton", "backends/nvidia/include"),
    "set CUDA_INCLUDE_DIR, or install the CUDA toolkit or the triton package",
)


def build(preset: str, build_dir: Path) -> Path:
    """Configure and compile; returns the library."""
    if not (GENERATED / "kernel_table.cpp").is_file():
        write_header(GENERATED)
        if preset == "release":
            raise SystemExit("no compiled kernels: run build_scripts/compile_kernels.py first, or --preset no-kernels")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    headers = [f"-DTENSORRT_INCLUDE_DIR={TENSORRT.folder()}", f"-DCUDA_INCLUDE_DIR={CUDA.folder()}"]
    _run(["cmake", "--preset", preset, "-B", str(build_dir), *generator, *headers])
    _run(["cmake", "--build", str(build_dir)])
    return build_dir / LIBRARY_NAME


def put(library: Path, output: Path) -> None:
    """Put a copy at `output` as a new file: a process that has the old one mapped keeps it, and does not crash."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as folder:
        Path(shutil.copy2(library, Path(folder) / output.name)).replace(output)


def _run(command: Sequence[str]) -> None:
    if subprocess.run(command, cwd=PLUGINS, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(command)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="release", help="no-kernels: a library for builds only")
    parser.add_argument("--build-dir", type=Path, help="default: plugins/build/PRESET")
    parser.add_argument("--output", type=Path, default=PACKAGED_LIBRARY, help="file to write")
    options = parser.parse_args()
    build_dir = options.build_dir or PLUGINS / "build" / options.preset
    library = build(options.preset, build_dir.resolve())
    put(library, options.output)
    print(f"{options.output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
