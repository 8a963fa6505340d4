# SPDX-License-Identifier: Apache-2.0
"""The plugin library is found, compared with the contract and registered, or refused in words (case G2)."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hspec_trt import contract, native
from hspec_trt.errors import HspecError, LoadError
from tests.support.plugin_build import plugin_library


def fake_library(folder: Path, description: str) -> Path:
    """A library that describes itself as told and has nothing else."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    source = folder / "fake.c"
    text = description.replace('"', '\\"')
    source.write_text(
        f'char const* hspec_trt_describe(void) {{ return "{text}"; }}\n'
        'char const* hspec_trt_last_error(void) { return ""; }\n'
    )
    library = folder / native.LIBRARY_NAME
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def description(**changes: object) -> str:

    return json.dumps(
        {
            "contract_version": contract.CONTRACT_VERSION,
            "plugin_version": contract.PLUGIN_VERSION,
            "ops_digest": contract.ops_digest(),
            "tensorrt": "10.14.1",
            "ops": {op.name: list(op.attributes) for op in contract.OPS.values()},
            "kernels": {"variants": 3, "sm": [80, 89], "ptx": [120]},
            **changes,
        }
    )


def test_missing_library_names_place_and_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.LIBRARY_VARIABLE, str(tmp_path / "gone.so"))
    with pytest.raises(LoadError) as caught:
        native.find_library()
    text = str(caught.value)
    assert text.startswith("error[L002]") and str(tmp_path / "gone.so") in text
    assert native.LIBRARY_VARIABLE in text and "build_plugins.py" in text


def test_explicit_path_wins_over_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "mine.so"
    library.touch()
    monkeypatch.setenv(native.LIBRARY_VARIABLE, str(tmp_path / "other.so"))
    assert native.find_library(library) == library


def test_file_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / native.LIBRARY_NAME
    path.write_text("not ELF")
    with pytest.raises(LoadError, match=r"error\[L002\].*cannot be used"):
        native.open_library(path)


def test_library_of_somebody_else(tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text("int nothing(void) { return 0; }\n")
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    path = tmp_path / "other.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    with pytest.raises(LoadError, match=r"L002.*hspec_trt_describe"):
        native.open_library(path)


def test_other_contract_lists_every_difference(tmp_path: Path) -> None:
    library = fake_library(tmp_path, description(contract_version=99, ops_digest="0000"))
    with pytest.raises(HspecError) as caught:
        native.open_library(library)
    assert [fault.code for fault in caught.value.faults] == ["L002", "L002"]
    text = str(caught.value)
    assert "contract_version is 99" in text and "needed: 1" in text and '"0000"' in text


def test_agreeing_library_tells_its_kernels(tmp_path: Path) -> None:
    opened = native.open_library(fake_library(tmp_path, description()))
    assert (opened.num_variants, opened.sm, opened.ptx) == (3, (80, 89), (120,))


def test_real_library_agrees_and_names_missing_kernel() -> None:
    opened = native.open_library(plugin_library())
    assert opened.num_variants == 0
    node = native.OpNode(
        "Mamba2BlockScan",
        {"num_heads": 8, "head_dim": 64, "state_size": 16, "n_groups": 2, "conv_kernel": 4, "block_size": 8},
        "bfloat16",
        ((-1, 8, 576), (-1, 8, 8), (576, 1, 4), (576,), (8,), (8,), (8,), (-1, 8, 64, 16)),
    )
    text = opened.missing_kernel(node, 89)
    assert "mamba2_block_scan" in text and "STATE_SIZE 16" in text and "sm_89" in text and "bfloat16" in text


def test_bad_attributes_are_told_by_the_library() -> None:
    node = native.OpNode(
        "Mamba2BlockScan",
        {"num_heads": 7, "head_dim": 64, "state_size": 16, "n_groups": 2, "conv_kernel": 4, "block_size": 8},
        "bfloat16",
        ((-1, 8, 512), (-1, 8, 7), (512, 1, 4), (512,), (7,), (7,), (7,), (-1, 7, 64, 16)),
    )
    assert "num_heads 7 is not a multiple of n_groups 2" in native.open_library(plugin_library()).missing_kernel(
        node, 89
    )


@dataclass(frozen=True)
class FakeCreator:
    name: str
    plugin_version: str = contract.PLUGIN_VERSION
    plugin_namespace: str = contract.OP_DOMAIN


@dataclass
class FakeRegistry:
    """Registers `offers` when a library is loaded."""

    offers: list[FakeCreator]
    all_creators: list[FakeCreator] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def load_library(self, plugin_path: str) -> object:
        self.loaded.append(plugin_path)
        self.all_creators.extend(self.offers)
        return object() if self.offers else None


@pytest.fixture
def opened(tmp_path: Path) -> native.PluginLibrary:
    return native.open_library(fake_library(tmp_path, description()))


def test_register_loads_once(opened: native.PluginLibrary) -> None:
    registry = FakeRegistry([FakeCreator(name) for name in contract.OPS])
    native.register(opened, registry)
    native.register(opened, registry)
    assert registry.loaded == [str(opened.path)]


def test_register_names_the_missing_creator(opened: native.PluginLibrary) -> None:
    creators = [FakeCreator(name) for name in contract.OPS if name != "SampleTokens"]
    creators.append(FakeCreator("SampleTokens", plugin_version="7"))
    with pytest.raises(LoadError, match=r"L002.*SampleTokens.*10\.14\.1"):
        native.register(opened, FakeRegistry(creators))


def test_register_when_tensorrt_refuses_the_library(opened: native.PluginLibrary) -> None:
    with pytest.raises(LoadError, match="L002"):
        native.register(opened, FakeRegistry([]))
