# SPDX-License-Identifier: Apache-2.0
"""The generated C++ table: it compiles, links and holds the same bytes and numbers as the Python side."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from build_scripts.kernel_table import CompiledKernel, render_header, render_readme_arguments, write_table
from plugins.kernels.catalog import ARG_TYPES, KERNELS, KernelSpec

ROOT = Path(__file__).resolve().parents[3]
KERNELS_COMPILED = (
    CompiledKernel("append_kv", "float16", (64, 3, 16), 80, False, "append_kv", 128, 0, 20, 0, b"first" * 13),
    CompiledKernel("sample_scan", "none", (16,), 90, False, "sample_scan", 128, 64, 30, 0, b"second"),
    CompiledKernel("append_kv", "bfloat16", (64, 3, 16), 80, True, "append_kv", 128, 0, 0, 0, b".version 8.0\0"),
)
PROBE = """
#include "kernel_table.h"
#include <cstdio>
int main() {
  using namespace hspec_trt;
  for (std::size_t i = 0; i < kNumKernelVariants; ++i) {
    const KernelVariant& v = kKernelVariants[i];
    std::printf("%d %d %d %d %d %s %u %u %.*s\\n", static_cast<int>(v.kernel), static_cast<int>(v.dtype), v.key[0],
                v.sm, v.ptx, v.symbol, v.threads, v.sharedBytes, static_cast<int>(v.size),
                reinterpret_cast<const char*>(kernelBlob()) + v.offset);
  }
  SampleFinishArgs args;
  std::printf("%zu\\n", args.params().size());
}
"""


def test_generated_files_compile_and_hold_the_code(tmp_path: Path) -> None:
    write_table(tmp_path, KERNELS_COMPILED)
    (tmp_path / "probe.cpp").write_text(PROBE)
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", f"-Wa,-I{tmp_path}", "-o", "probe"]
    subprocess.run([*command, "probe.cpp", "kernel_table.cpp", "kernel_blob.S"], cwd=tmp_path, check=True)
    lines = subprocess.run([str(tmp_path / "probe")], check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines == [
        f"0 1 64 80 0 append_kv 128 0 {'first' * 13}",
        "6 0 16 90 0 sample_scan 128 64 second",
        "0 2 64 80 1 append_kv 128 0 .version 8.0",
        str(len(KERNELS["sample_finish"].args) + 2),
    ]


def test_json_names_the_constants(tmp_path: Path) -> None:
    write_table(tmp_path, KERNELS_COMPILED)
    rows = json.loads((tmp_path / "kernels.json").read_text())
    assert rows[0]["key"] == {"HEAD_DIM": 64, "GROUP": 3, "PAGE_SIZE": 16}
    assert [row["bytes"] for row in rows] == [65, 6, 13]


def test_same_kernels_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_table(tmp_path / name, KERNELS_COMPILED)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_readme_lists_the_arguments_of_the_catalog() -> None:
    assert (ROOT / "plugins" / "kernels" / "README.md").read_text().endswith(render_readme_arguments())


@pytest.mark.parametrize("spec", KERNELS.values(), ids=lambda spec: spec.name)
def test_catalog_uses_known_types(spec: KernelSpec) -> None:
    assert {arg.type for arg in spec.args} <= set(ARG_TYPES)
    assert len(spec.key) <= 6
    assert f"struct {''.join(part.capitalize() for part in spec.name.split('_'))}Args" in render_header()
