# SPDX-License-Identifier: Apache-2.0
"""Both runtimes open the same folders and refuse the same ones with the same codes and texts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hspec_trt.bundle import Artifact, open_engine
from hspec_trt.config.drafter_kinds import DRAFTER_KINDS
from hspec_trt.errors import HspecError
from tests.support.broken_engines import (
    BREAKS,
    JSON_TEXTS,
    changed_manifests,
    engine,
    large_engine,
    paths_to_nothing,
    plain_manifest,
    write_manifest,
)
from tests.support.c_runtime import CError, CRuntime
from tests.support.engine_folders import MANIFEST, write_engine


def python_says(path: str | Path, *, whole: bool = False) -> str:
    try:
        open_engine(Path(path), whole=whole)
    except HspecError as error:
        return str(error)
    return "opens"


def cpp_says(runtime: CRuntime, path: str | Path, *, whole: bool = False) -> str:
    try:
        folder = runtime.open_folder(os.fsencode(path), whole=whole)
    except CError as error:
        return str(error)
    runtime.free("folder", folder)
    return "opens"


@pytest.mark.parametrize("name", BREAKS)
@pytest.mark.parametrize("whole", [False, True])
def test_files(runtime: CRuntime, tmp_path: Path, name: str, whole: bool) -> None:
    folder = engine(tmp_path / "engine")
    BREAKS[name](folder)
    told = python_says(folder, whole=whole)
    assert cpp_says(runtime, folder, whole=whole) == told
    assert (told == "opens") == (name in ("whole", "extra file"))


def test_json_texts(runtime: CRuntime, tmp_path: Path) -> None:
    folder = engine(tmp_path / "engine")
    for text in JSON_TEXTS:
        write_manifest(folder, text)
        told = python_says(folder)
        assert told.startswith(("error[L003]", "error[L004]")), text[:80]
        assert cpp_says(runtime, folder) == told, text[:80]


def test_every_field_of_a_manifest(runtime: CRuntime, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    artifact = Artifact("tensorrt", "graph.onnx", "10.14.1.48", (89, 90))
    write_engine(folder, {"graph.onnx": b"graph"}, manifest=replace(MANIFEST, artifacts=(artifact,)))
    refused = 0
    for manifest in changed_manifests(plain_manifest(folder)):
        write_manifest(folder, manifest)
        told = python_says(folder)
        assert cpp_says(runtime, folder) == told
        refused += told != "opens"
    assert refused > 1000


@pytest.mark.parametrize("kind", DRAFTER_KINDS)
def test_fields_of_every_drafter(runtime: CRuntime, tmp_path: Path, kind: str) -> None:
    folder = engine(tmp_path / "engine")
    plain = plain_manifest(folder)
    plain["drafter"]["kind"] = kind
    write_manifest(folder, plain)
    assert cpp_says(runtime, folder) == python_says(folder)
    plain["drafter"] = {key: plain["drafter"][key] for key in ("kind", "vocab_size")}
    write_manifest(folder, plain)
    assert cpp_says(runtime, folder) == python_says(folder)


def test_large_files_are_sampled(runtime: CRuntime, tmp_path: Path) -> None:
    large_engine(tmp_path / "engine")
    assert cpp_says(runtime, tmp_path / "engine") == python_says(tmp_path / "engine") == "opens"
    told = python_says(tmp_path / "engine", whole=True)
    assert cpp_says(runtime, tmp_path / "engine", whole=True) == told
    assert "changed after the build" in told


def test_paths_to_nothing(runtime: CRuntime, tmp_path: Path) -> None:
    for path in paths_to_nothing(tmp_path):
        told = python_says(path)
        assert cpp_says(runtime, path) == told, path
        assert told.startswith(("error[L007]", "error[L008]"))
