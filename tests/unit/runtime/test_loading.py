# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with an engine folder once its hashes are right, and how memory is shared out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from hspec_trt.bundle import EngineFolder, Manifest, open_engine, record_file
from hspec_trt.config.build import BuildConfig
from hspec_trt.errors import HspecError, LoadError, RequestError
from hspec_trt.pipeline import build
from hspec_trt.runtime import loading
from hspec_trt.runtime.engine import load_engine
from hspec_trt.runtime.external_data import check_external_data
from hspec_trt.runtime.loading import check_options, limits_of, load_session
from hspec_trt.runtime.mapped_file import let_go
from hspec_trt.runtime.options import Prepack, RuntimeOptions
from hspec_trt.runtime.ort_session import OrtSession
from hspec_trt.runtime.padding import Padding
from tests.support.engines import make_engine
from tests.support.golden_pair import hspec_pair
from tests.support.plain_loop import plain_decode
from tests.support.tiny_models import t_rand, write_target

SMALL = RuntimeOptions(num_threads=1, kv_cache_memory=1 << 21)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_engine(tmp_path_factory.mktemp("engine") / "e", hspec_pair("hspec_llama"))


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[OrtSession]:
    loaded = load_session(open_engine(folder), SMALL).session
    assert isinstance(loaded, OrtSession)
    yield loaded


def rewrite(folder: Path, **changes: object) -> None:
    """Change the manifest, with hashes that fit the files."""
    path = folder / "config.json"
    manifest = Manifest.from_json(path.read_bytes(), "")
    files = {name: record_file(folder / name) for name in manifest.files}
    path.write_bytes(replace(manifest, files=files, **changes).to_json())


def code_of(folder: Path, options: RuntimeOptions = SMALL) -> str:
    with pytest.raises(HspecError) as caught:
        load_engine(folder, options)
    return caught.value.code


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_graph_that_is_no_graph(copy: Path) -> None:
    (copy / "graph.onnx").write_bytes(b"\xff" * 100)
    rewrite(copy)
    assert code_of(copy) == "L030"


def test_graph_with_other_names(copy: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 23)]), copy / "graph.onnx")
    rewrite(copy)
    with pytest.raises(LoadError, match=r"L031.*missing inputs.*cu_query_lens.*unknown: \['x'\]"):
        load_engine(copy, SMALL)


def test_backend_that_cannot_run_here(copy: Path) -> None:
    rewrite(copy, backend="tensorrt-rtx")
    assert code_of(copy) in ("L033", "L042")  # no package, or no GPU


def test_onnxruntime_not_installed(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hspec_trt.runtime.ort_session", None)
    with pytest.raises(LoadError, match=r"L033.*pip install"):
        load_engine(copy, SMALL)


@pytest.mark.parametrize("place", ["../../w.bin", "/etc/passwd", "a/../../w.bin", "..", ""])
@pytest.mark.parametrize("where", ["initializer", "constant", "branch", "function"])
def test_weights_outside_the_folder_are_never_opened(place: str, where: str, tmp_path: Path) -> None:
    """Case A2, wherever in a graph the tensor hides."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=place)
    constant = helper.make_node("Constant", [], ["w"])
    constant.attribute.append(helper.make_attribute("value", tensor))
    branch = helper.make_graph([constant], "b", [], [helper.make_tensor_value_info("w", TensorProto.FLOAT, [1])])
    nodes = {
        "initializer": helper.make_node("Identity", ["w"], ["y"]),
        "constant": constant,
        "branch": helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        "function": helper.make_node("f", [], ["y"], domain="d"),
    }
    graph = helper.make_graph([nodes[where]], "g", [], [], initializer=[tensor] if where == "initializer" else [])
    function = helper.make_function("d", "f", [], ["w"], [constant], [helper.make_opsetid("", 23)])
    model = helper.make_model(graph, functions=[function] if where == "function" else [])
    (tmp_path / "graph.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(LoadError, match="L034"):
        check_external_data(tmp_path / "graph.onnx")


def test_a_plain_name_is_fine(folder: Path) -> None:
    check_external_data(folder / "graph.onnx")


def test_page_budget(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_engine(folder)

    def pages(options: RuntimeOptions) -> int:
        return load_session(opened, options).memory.num_pages

    limits = limits_of(opened.manifest)
    most = limits.max_rows * limits.max_pages_per_row + 1
    assert pages(RuntimeOptions(1, kv_cache_memory=1 << 40)) == most
    page_bytes = load_session(opened, SMALL).memory.page_bytes
    assert page_bytes == 6 * 2 * 2 * 16 * 16 * 4  # layers, K and V, heads, tokens, channels, bytes
    assert pages(RuntimeOptions(1, kv_cache_memory=10 * page_bytes + 5)) == 10
    monkeypatch.setattr(loading, "free_memory", lambda: 100 * page_bytes)
    assert pages(RuntimeOptions(1, prepack="off", kv_cache_fraction=0.2)) == 20
    assert code_of(folder, RuntimeOptions(kv_cache_memory=page_bytes)) == "L035"


def test_weights_are_repacked_where_memory_allows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: EngineFolder = open_engine(folder)
    size = (folder / "weights.safetensors").stat().st_size

    def prepacked(free: int, prepack: str) -> int:
        monkeypatch.setattr(loading, "free_memory", lambda: free)
        options = RuntimeOptions(1, prepack=prepack, kv_cache_memory=1 << 21)  # type: ignore[arg-type]
        return load_session(opened, options).memory.prepacked

    assert prepacked(5 * size, "auto") == size
    assert prepacked(3 * size, "auto") == 0
    assert prepacked(3 * size, "on") == size
    assert prepacked(1 << 40, "off") == 0


def resident(path: Path) -> int:
    """Bytes of a file's mappings that this process holds."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        ours = line.endswith(str(path)) if "-" in line.split()[0] else ours
        total += int(line.split()[1]) * 1024 if ours and line.startswith("Rss:") else 0
    return total


@pytest.mark.parametrize("prepack", ["on", "off"])
def test_weights_are_held_once(prepack: Prepack, tmp_path: Path) -> None:
    """The table is looked up in and is the head too: repacked for the one, mapped for the other."""
    folder = tmp_path / "e"
    build(
        write_target(tmp_path / "t", *t_rand(tied=True, vocab_size=1 << 16)), None, folder, BuildConfig(max_seq_len=64)
    )
    loaded = load_session(open_engine(folder), replace(SMALL, prepack=prepack))
    weights = folder / "weights.safetensors"
    assert resident(weights) == 0
    assert isinstance(loaded.session, OrtSession)
    first = plain_decode(loaded.session, [5, 6, 7], 8)
    held = resident(weights)
    assert held < weights.stat().st_size / 4 if prepack == "on" else held > weights.stat().st_size / 2
    assert let_go(weights) > 0
    assert resident(weights) == 0
    loaded.session.allocate(loaded.session.num_pages)
    assert plain_decode(loaded.session, [5, 6, 7], 8) == first


def test_what_was_written_to_a_mapping_stays(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)) * 64)
    mapped = np.memmap(path, np.uint8, "c")
    assert mapped[::512].sum() == 0
    assert let_go(path) >= path.stat().st_size
    assert resident(path) == 0
    mapped[3] = 77
    assert let_go(path) == 0
    assert (mapped[3], mapped[4]) == (77, 4)


def test_padding_by_case() -> None:
    assert Padding.needed(prepacked=True, grouped_heads=True) == Padding(1, 1, 1)
    assert Padding.needed(prepacked=True, grouped_heads=False) == Padding(1, 2, 1)
    assert Padding.needed(prepacked=False, grouped_heads=True) == Padding(2, 2, 2)


def test_pages_are_updated_in_place_and_scrubbed(session: OrtSession) -> None:
    session.allocate(6)
    assert session.num_pages == 6
    plain_decode(session, [5, 6, 7], 20)
    pools = session._pages
    assert all(np.abs(pool[1]).sum() > 0 and np.abs(pool[2]).sum() > 0 for pool in pools)
    assert all(not pool[3:].any() for pool in pools)
    session.scrub(np.array([0, 1], np.int32))
    assert all(not pool[1].any() and pool[2].any() for pool in pools)


def test_steps_do_not_share_outputs(session: OrtSession) -> None:
    session.allocate(6)
    first = plain_decode(session, [5, 6, 7], 8)
    session.allocate(6)
    assert plain_decode(session, [5, 6, 7], 8) == first


def test_backend_fault_is_a_request_fault(session: OrtSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from hspec_trt.runtime import ort_session

    session.allocate(6)
    monkeypatch.setattr(ort_session, "check_step", lambda *args: None)
    from tests.unit.runtime.test_step_checks import good

    bad = replace(good(), page_table=np.array([[99, 0], [2, 3]], np.int32))  # outside the pool
    with pytest.raises(RequestError) as caught:
        session.step(bad)
    assert caught.value.code == "R302"
    session.allocate(6)
    assert len(plain_decode(session, [5, 6, 7], 4).ids) == 4


def test_options_that_no_engine_takes_are_told_together_under_both_of_their_names() -> None:
    wrong = RuntimeOptions(num_threads=0, prepack="perhaps", kv_cache_memory=0, kv_cache_fraction=1.5)  # type: ignore[arg-type]
    with pytest.raises(HspecError) as caught:
        check_options(wrong)
    assert [fault.code for fault in caught.value.faults] == ["L036"] * 4
    assert caught.value.faults[0].found == "num_threads (--threads) is 0"
