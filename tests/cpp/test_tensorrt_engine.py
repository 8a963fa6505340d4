# SPDX-License-Identifier: Apache-2.0
"""The TensorRT step engine on a stand-in for driver and TensorRT that executes the step graph on host memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hspec_trt import LLM, SamplingParams
from hspec_trt.config.build import FEEDBACK, BuildConfig
from hspec_trt.native import LIBRARY_VARIABLE
from hspec_trt.runtime.options import RuntimeOptions
from tests.support.engines import make_engine
from tests.support.golden_pair import hspec_pair
from tests.support.gpu_machine import compiled_engine, plan_text, run_on_fake_gpu
from tests.unit.test_native import description, fake_library

Texts = Callable[[Sequence[dict[str, Any]]], list[list[int]]]


def build_engine(folder: Path, **options: Any) -> Path:
    build = BuildConfig(page_size=16, max_batch_size=4, max_num_tokens=48, **options)
    return make_engine(folder, hspec_pair("hspec_llama"), build=build)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_engine(tmp_path_factory.mktemp("built") / "engine")


@pytest.fixture(scope="module")
def feeding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same engine with the extension that lets a step start from the last one's outputs on the device."""
    return build_engine(tmp_path_factory.mktemp("feeding") / "engine", extensions=(FEEDBACK,))


@pytest.fixture(scope="module")
def texts(built: Path) -> Iterator[Texts]:
    """The Python runtime's answers to requests, one at a time."""
    with LLM(built, RuntimeOptions(num_threads=1)) as llm:

        def answer(request: dict[str, Any]) -> list[int]:
            params = SamplingParams(
                max_tokens=request["max_tokens"],
                temperature=request["temperature"],
                seed=request.get("seed", 0),
                ignore_eos=True,
                drafts="off",
            )
            return llm.generate(request["prompt"], params).outputs[0].token_ids

        yield lambda requests: [answer(request) for request in requests]


@pytest.fixture(scope="module")
def compiled(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_engine(tmp_path_factory.mktemp("compiled") / "engine", built)


def make_requests(count: int) -> list[dict[str, Any]]:
    rng = random.Random(7)
    return [
        {
            "prompt": [rng.randrange(4, 60) for _ in range(rng.choice([1, 5, 17, 60]))],
            "max_tokens": rng.choice([1, 9, 30]),
            "temperature": rng.choice([0.0, 0.8]),
            "seed": number,
            "ignore_eos": 1,
            "drafts": rng.choice([0, 1, 2]),
        }
        for number in range(count)
    ]


def test_texts_are_those_of_the_python_runtime(library: Path, built: Path, compiled: Path, texts: Texts) -> None:
    requests = make_requests(9)
    got = run_on_fake_gpu(library, compiled, built / "graph.onnx", requests)
    assert got["errors"] == [""] * len(requests)
    assert got["streamed"] == got["tokens"]
    assert got["tokens"] == texts(requests)
    assert got["followed_steps"] == 0  # the engine feeds nothing back


def long_requests(**changes: object) -> list[dict[str, Any]]:
    """Rows of different lengths."""
    sizes = ((0.0, 60, 9), (0.9, 41, 30), (0.5, 77, 20))
    return [
        {"prompt": list(range(5, 5 + size)), "max_tokens": most, "temperature": temperature, "seed": 3, **changes}
        | {"ignore_eos": 1, "drafts": 1}
        for temperature, most, size in sizes
    ]


@pytest.mark.parametrize("drafts", [1, 2])
def test_steps_go_ahead_and_change_no_text(
    drafts: int, library: Path, feeding: Path, texts: Texts, tmp_path: Path
) -> None:
    requests = [request | {"drafts": drafts} for request in long_requests()]
    got = run_on_fake_gpu(library, compiled_engine(tmp_path / "engine", feeding), feeding / "graph.onnx", requests)
    assert got["errors"] == [""] * 3 and got["streamed"] == got["tokens"] == texts(requests)
    assert drafts == 2 or got["followed_steps"] > 3  # auto does as the machine's times of steps have it
    assert got["runs"] == got["steps"]


def test_rows_that_end_while_a_step_is_ahead_of_them(
    library: Path, feeding: Path, texts: Texts, tmp_path: Path
) -> None:
    """A stop token far from the longest end: the step that went ahead has the row, and its outputs are dropped."""
    requests = long_requests()
    wanted = texts(requests)
    for number, place in ((0, 25), (1, 12)):
        stop = wanted[number][place]
        requests[number]["stop_token"] = stop
        wanted[number] = wanted[number][: wanted[number].index(stop) + 1]
    got = run_on_fake_gpu(library, compiled_engine(tmp_path / "engine", feeding), feeding / "graph.onnx", requests)
    assert got["reasons"] == ["stop_token", "stop_token", "length"] and got["tokens"] == wanted
    assert got["followed_steps"] > 3


def test_a_step_that_went_ahead_for_nobody(library: Path, feeding: Path, texts: Texts, tmp_path: Path) -> None:
    requests = [long_requests()[0] | {"cancel_at": 5}, long_requests()[1] | {"at": 9}]
    got = run_on_fake_gpu(library, compiled_engine(tmp_path / "engine", feeding), feeding / "graph.onnx", requests)
    assert got["runs"] == got["steps"] + 1 and got["followed_steps"] > 3
    assert got["tokens"][1] == texts(requests)[1]


def test_steps_that_went_ahead_of_cancels_and_arrivals(
    library: Path, feeding: Path, texts: Texts, tmp_path: Path
) -> None:
    requests = long_requests()
    requests[0] |= {"cancel_at": 6}
    requests.append(requests[1] | {"at": 10, "prompt": [5, 6, 7]})
    requests.append(requests[2] | {"at": 12, "cancel_at": 13, "drafts": 0})
    got = run_on_fake_gpu(library, compiled_engine(tmp_path / "engine", feeding), feeding / "graph.onnx", requests)
    assert got["reasons"] == ["cancelled", "length", "length", "length", "cancelled"]
    for tokens, text in zip(got["tokens"], texts(requests), strict=True):
        assert tokens == text[: len(tokens)]
    assert got["followed_steps"] > 3 and len(got["tokens"][0]) > 0


@pytest.mark.parametrize("call", ["cuMemcpyDtoDAsync_v2:3", "cuEventSynchronize:9", "cuGraphLaunch:2"])
def test_a_failure_among_steps_that_go_ahead(
    call: str, library: Path, feeding: Path, texts: Texts, tmp_path: Path
) -> None:
    """It ends the rows of that step; those that come later are served from clean ground."""
    requests = [*long_requests(), *(request | {"at": 60} for request in long_requests())]
    engine = compiled_engine(tmp_path / "engine", feeding)
    got = run_on_fake_gpu(library, engine, feeding / "graph.onnx", requests, FAKE_GPU_FAIL=call)
    assert got["failed_steps"] == 1
    assert all(error.startswith("error[R302]: the step failed: ") for error in got["errors"][:3])
    assert got["errors"][3:] == [""] * 3 and got["tokens"][3:] == texts(requests[3:])


@pytest.mark.parametrize(
    "changes", [{"drafts": 0}, {"max_tokens": 8}, {"num_drafts": 3}, {"draft_source": 1}, {"draft_source": 2}]
)
def test_nothing_goes_ahead_where_it_cannot_be_known(
    changes: dict[str, int], library: Path, feeding: Path, tmp_path: Path
) -> None:
    requests = [request | changes for request in long_requests()[:1]]
    got = run_on_fake_gpu(library, compiled_engine(tmp_path / "engine", feeding), feeding / "graph.onnx", requests)
    assert got["followed_steps"] == 0 and len(got["tokens"][0]) == requests[0]["max_tokens"]


@pytest.fixture
def with_plugins(feeding: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine whose plan writes pages in place."""
    plugins = fake_library(tmp_path, description(kernels={"variants": 1, "sm": [90], "ptx": []}))
    monkeypatch.setenv(LIBRARY_VARIABLE, str(plugins))
    plan = plan_text(feeding / "graph.onnx", aliased=True)
    return compiled_engine(tmp_path / "engine", feeding, plan, plugins="kernels")


def test_pages_in_place(library: Path, feeding: Path, with_plugins: Path, texts: Texts) -> None:
    requests = [*make_requests(5), *long_requests()]
    got = run_on_fake_gpu(library, with_plugins, feeding / "graph.onnx", requests)
    assert got["errors"] == [""] * len(requests) and got["tokens"] == texts(requests)
    assert got["followed_steps"] > 0


@pytest.mark.parametrize("plugins", ["none", "kernels"])
def test_pages_out_of_place_are_found(plugins: str, library: Path, feeding: Path, with_plugins: Path) -> None:
    """A plan that is not what the manifest says: what `test_pages_in_place` would see if they were not in place."""
    plan = plan_text(feeding / "graph.onnx", aliased=plugins == "none")
    engine = compiled_engine(with_plugins.with_name("other"), feeding, plan, plugins=plugins)
    got = run_on_fake_gpu(library, engine, feeding / "graph.onnx", long_requests()[:1])
    assert "kv_pages_out.0 is misplaced" in got["errors"][0] and got["tokens"] == [[]]


def test_decode_steps_come_in_few_shapes(library: Path, built: Path, compiled: Path) -> None:
    request = {"prompt": [5, 6, 7], "max_tokens": 40, "temperature": 0.0, "ignore_eos": 1, "drafts": 1}
    got = run_on_fake_gpu(library, compiled, built / "graph.onnx", [request] * 3)
    assert got["runs"] == got["steps"] - got["failed_steps"]
    decode = {tuple(shape) for shape in got["shapes"] if shape[1] <= 8}
    assert decode <= {(rows, width) for rows in (1, 2, 4) for width in (2, 8)}
    assert len(got["tokens"][0]) == 40 and got["tokens"][0] == got["tokens"][2]


def test_a_step_that_fails_ends_its_requests_only(library: Path, built: Path, compiled: Path) -> None:
    requests = make_requests(9)
    got = run_on_fake_gpu(library, compiled, built / "graph.onnx", requests, FAKE_GPU_FAIL="enqueueV3:3")
    assert got["failed_steps"] == 1
    failed = [text for text in got["errors"] if text]
    assert failed and all(
        text.startswith("error[R302]: the step failed: the step cannot be started") for text in failed
    )
    assert "length" in got["reasons"]


def test_an_engine_that_cannot_be_captured_runs_all_the_same(library: Path, built: Path, compiled: Path) -> None:
    requests = make_requests(3)
    plain = run_on_fake_gpu(library, compiled, built / "graph.onnx", requests)
    for call in ("cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"):
        got = run_on_fake_gpu(library, compiled, built / "graph.onnx", requests, FAKE_GPU_FAIL=call)
        assert got["tokens"] == plain["tokens"] and got["failed_steps"] == 0 and got["graph_launches"] == 0


def test_a_launch_that_cannot_be_captured_costs_its_own_shape_only(library: Path, built: Path, compiled: Path) -> None:
    requests = make_requests(3)
    plain = run_on_fake_gpu(library, compiled, built / "graph.onnx", requests)
    for call in ("cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"):
        got = run_on_fake_gpu(library, compiled, built / "graph.onnx", requests, FAKE_GPU_FAIL=f"{call}:1")
        assert got["tokens"] == plain["tokens"] and 0 < got["graph_launches"] < plain["graph_launches"]
