# SPDX-License-Identifier: Apache-2.0
"""Builds the stand-in for a GPU machine (tests/support/fake_gpu): the driver and TensorRT on host memory."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from build_scripts.build_plugins import TENSORRT
from tests.support.stand_in_driver import ROOT, build_driver

SOURCES = Path(__file__).parent / "fake_gpu"
BUILD = ROOT / "build" / "tests-fake-gpu"
_STUBBED = (
    ("NvInferImpl.h", "VRuntime", "nvinfer1::apiv::"),
    ("NvInferImpl.h", "VCudaEngine", "nvinfer1::apiv::"),
    ("NvInferImpl.h", "VExecutionContext", "nvinfer1::apiv::"),
    ("NvInferRuntimeCommon.h", "IPluginRegistry", "nvinfer1::"),
)


@cache
def fake_gpu() -> Path:
    """The library, named as the driver is; its folder goes on LD_LIBRARY_PATH of a process of its own."""
    write_stubs(TENSORRT.folder(), BUILD)
    return build_driver(SOURCES, BUILD, includes=[BUILD], options=["-w"])


def write_stubs(headers: Path, folder: Path) -> None:
    """Write ``stubs.h``: classes of these headers whose every method ends the process."""
    folder.mkdir(parents=True, exist_ok=True)
    stubs = "\n".join(_stub(headers / file, name, scope) for file, name, scope in _STUBBED)
    (folder / "stubs.h").write_text(
        "#include <cstdio>\n#include <cstdlib>\nnamespace stubs {\nusing namespace nvinfer1;\n"
        '[[noreturn]] inline void unused(char const* name) { std::fprintf(stderr, "%s is not faked\\n", name); '
        f"std::abort(); }}\n{stubs}\n}}\n"
    )


def _stub(header: Path, name: str, scope: str) -> str:
    """A class that overrides every method that is left open, to end the process in words."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"#if ENABLE_FEATURE\w+.*?#endif", "", text, flags=re.DOTALL)
    body = text[re.search(rf"class {name}\b[^;{{]*{{", text).end() :]  # type: ignore[union-attr]
    body = body[: body.index("\n};")]
    methods = []
    for declared in re.findall(r"virtual\s+([^;{}]*?)\s*=\s*0\s*;", body):
        method = re.search(r"(\w+)\s*\(", declared).group(1)  # type: ignore[union-attr]
        plain = re.sub(r"\s*=\s*[^,)]+", "", declared)  # default arguments
        methods.append(f'    {plain} override {{ unused("{name}::{method}"); }}')
    return f"class {name} : public {scope}{name} {{\n  public:\n" + "\n".join(methods) + "\n};"
