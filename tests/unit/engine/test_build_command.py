# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt build`` for a TensorRT backend: a whole folder, or an error, exit code 2 and no folder (case G1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from hspec_trt.bundle import Manifest, open_engine, record_file
from hspec_trt.bundle.layers import Parsed, PluginLayer
from hspec_trt.cli import main

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "hspec_qwen3"
COMMON = ("--backend", "tensorrt-rtx", "--plugins", "none", "--max-batch-size", "4", "--max-num-tokens", "64")


def run_build(output: Path, *options: str) -> int:
    pair = ("--target", str(GOLDEN / "target"), "--drafter", str(GOLDEN / "drafter"))
    with pytest.raises(SystemExit) as caught:
        main(["build", *pair, "--output", str(output), *COMMON, *options])
    return int(str(caught.value.code))


def test_folder_with_a_plan(fake_trt: Callable[[str], None], tmp_path: Path) -> None:
    fake_trt("ok")
    assert run_build(tmp_path / "engine", "--sm", "80,89") == 0
    opened = open_engine(tmp_path / "engine", whole=True)
    (artifact,) = opened.manifest.artifacts
    assert (artifact.backend, artifact.file, artifact.sm) == ("tensorrt-rtx", "rank0.engine", (80, 89))
    assert artifact.tensorrt_version == "1.0" and opened.manifest.dtype == "bfloat16"
    assert json.loads((opened.path / "rank0.layers.json").read_text())["layer_counts"] == {"SHUFFLE": 1}
    assert {path.name for path in tmp_path.iterdir()} == {"engine"}
    # The plan is JSON of what was asked: decode rows go up to the batch, and pages have the default size.
    asked = json.loads(opened.file("rank0.engine").read_bytes()[5:])
    assert asked["profiles"][0]["context_lens"][2] == [4] and asked["profiles"][0]["kv_pages.0"][0][3] == 64


def test_inspect_shows_what_was_parsed(
    fake_trt: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_trt("ok")
    assert run_build(tmp_path / "engine", "--sm", "80,89") == 0
    layers = [
        PluginLayer(f"n{i}", "PagedAttention", {"head_dim": 16, "scale": 0.25}, ("a",), ("o",), {f"out.{i}": f"in.{i}"})
        for i in range(2)
    ]
    layers.append(PluginLayer("s", "SampleTokens", {}, ("l",), ("i",), {}))
    listed = tmp_path / "engine" / "rank0.layers.json"
    listed.write_text(json.dumps(asdict(Parsed({"PLUGIN_V3": 3, "SHUFFLE": 9}, tuple(layers)))))
    manifest = open_manifest(tmp_path / "engine")
    files = {**manifest.files, listed.name: record_file(listed)}
    (tmp_path / "engine" / "config.json").write_bytes(replace(manifest, files=files, plugins="kernels").to_json())
    with pytest.raises(SystemExit):
        main(["inspect", str(tmp_path / "engine")])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for words in ("80, 89", "plugin kernels", "PLUGIN_V3 3", "2 x head_dim 16, scale 0.25", "1 x no fields"):
        assert words in shown, words
    assert "out.0 in place of in.0" in shown and "out.1 in place of in.1" in shown


def open_manifest(folder: Path) -> Manifest:
    return Manifest.from_json((folder / "config.json").read_bytes(), "")


@pytest.mark.parametrize("way", ["SIGABRT", "SIGKILL", "none", "raise"])
def test_bad_end_in_the_child(
    way: str, fake_trt: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_trt(way)
    assert run_build(tmp_path / "engine") == 2
    error = capsys.readouterr().err
    assert "error[B04" in error and "Traceback" not in error
    assert {path.name for path in tmp_path.iterdir()} == {"engine.build.log"}
    assert str(tmp_path / "engine.build.log") in error.replace("\n", "")


def test_wrong_plugin_library_is_told_before_anything_is_read(
    fake_trt: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_trt("ok")
    (tmp_path / "wrong.so").write_text("no library")
    monkeypatch.setenv("HSPEC_TRT_PLUGIN_LIBRARY", str(tmp_path / "wrong.so"))
    with pytest.raises(SystemExit) as caught:
        main(["build", "--target", "none", "--output", str(tmp_path / "engine"), "--backend", "tensorrt-rtx"])
    assert caught.value.code == 2
    assert "error[L002]" in capsys.readouterr().err
    assert not (tmp_path / "engine").exists()


def test_architecture_list_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_build(tmp_path / "engine", "--sm", "8.9") == 2
    assert "error[B044]: --sm 8.9" in capsys.readouterr().err
