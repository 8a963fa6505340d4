# SPDX-License-Identifier: Apache-2.0
"""The installed library as others use it: from C, through find_package, and with nothing visible but the API."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.runtime_build import ROOT, runtime_build

INCLUDE = ROOT / "runtime_cpp" / "include"
EXAMPLE = """\
#include <hspec_trt/runtime/engine_folder.h>
#include <hspec_trt/runtime/error.h>
#include <hspec_trt/runtime/load.h>
#include <hspec_trt/runtime/runtime.h>

#include <cstdio>

int main(int, char** arguments) {
    try {
        hspec_trt::EngineFolder const folder = hspec_trt::EngineFolder::open(arguments[1]);
        hspec_trt::Runtime runtime(hspec_trt::loadEngine(folder), {folder.eosIds()});
    } catch (hspec_trt::Error const& error) {
        std::puts(error.what());
        return error.code() == "L007" ? 0 : 1;
    }
    return 2;
}
"""
C_EXAMPLE = """\
#include <hspec_trt/runtime_c.h>
#include <stdio.h>
#include <string.h>

int main(int count, char** arguments) {
    hspec_rt_folder* folder = NULL;
    hspec_rt_error* error = NULL;
    int wrong = count != 2 || hspec_rt_api_version() != HSPEC_RT_API_VERSION;
    wrong |= hspec_rt_folder_open(arguments[1], 0, &folder, &error) != 1 || folder != NULL;
    puts(hspec_rt_error_text(error));
    wrong |= strcmp(hspec_rt_error_code(error, 0), "L007") != 0 || hspec_rt_error_code(error, 1) != NULL;
    hspec_rt_error_free(error);
    hspec_rt_folder_free(folder);
    return wrong;
}
"""
PROJECT = """\
cmake_minimum_required(VERSION 3.22)
project(outside LANGUAGES C CXX)
find_package(hspec_trt 0.1 REQUIRED)
add_executable(outside outside.cpp)
target_link_libraries(outside PRIVATE hspec_trt::runtime)
add_executable(outside_c outside.c)
set_target_properties(outside_c PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)
target_compile_options(outside_c PRIVATE -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(outside_c PRIVATE hspec_trt::runtime)
"""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    result = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", runtime_build(), "--prefix", prefix)
    return prefix


def test_an_outside_project_finds_and_runs_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "outside.cpp").write_text(EXAMPLE)
    (tmp_path / "outside.c").write_text(C_EXAMPLE)
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed}")
    run("cmake", "--build", tmp_path / "build")
    for program in ("outside", "outside_c"):
        assert "error[L007]" in run(tmp_path / "build" / program, tmp_path / "no-engine")


def test_nothing_is_visible_but_the_api(installed: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    (library,) = installed.glob("lib*/libhspec_trt_runtime.so")
    names = {line.split(" ", 2)[2] for line in run("nm", "-DC", "--defined-only", library).splitlines()}
    headers = "\n".join(path.read_text() for path in (INCLUDE / "hspec_trt" / "runtime").glob("*.h"))
    declared = set(re.findall(r"(?:class|struct) (?:HSPEC_TRT_RUNTIME_API )?(\w+)", headers))
    declared |= set(re.findall(r"^HSPEC_TRT_RUNTIME_API .*?(\w+)\(", headers, re.MULTILINE))
    c_names = set(re.findall(r"(hspec_rt_\w+)\(", (INCLUDE / "hspec_trt" / "runtime_c.h").read_text()))
    cpp_names = {name for name in names if not name.startswith("hspec_rt_")}
    assert names - cpp_names == c_names
    owner = re.compile(r"(?:(?:vtable|typeinfo|typeinfo name) for )?hspec_trt::(\w+)")
    for name in cpp_names:
        found = owner.match(name)
        assert found and found.group(1) in declared, name


def test_it_links_neither_tensorrt_nor_the_driver(installed: Path) -> None:
    (library,) = installed.glob("lib*/libhspec_trt_runtime.so")
    needed = run("ldd", library)
    assert not re.search(r"nvinfer|tensorrt|cuda", needed)


def test_every_header_stands_alone(installed: Path, tmp_path: Path) -> None:
    headers = sorted((installed / "include").rglob("*.h"))
    assert len(headers) >= 8
    for header in headers:
        source = tmp_path / "header.cpp"
        source.write_text(f'#include "{header}"\n')
        run("g++", "-std=c++17", "-Wall", "-Werror", "-fsyntax-only", "-I", installed / "include", source)


def test_versions_agree() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    cmake = (ROOT / "runtime_cpp" / "CMakeLists.txt").read_text()
    version = re.search(r'^version = "(.*)"', project, re.MULTILINE)
    assert version and f"VERSION {version.group(1)} " in cmake


def test_the_manifest_header_is_current() -> None:
    run(sys.executable, ROOT / "build_scripts" / "gen_manifest_header.py", "--check")
