# SPDX-License-Identifier: Apache-2.0
"""The exported repository in a real Triton Inference Server, with a small engine.

The server comes from PyPI (`build_scripts/triton_server.py`). A machine where it cannot be installed or started fails
these tests; it does not skip them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from tritonclient.utils import InferenceServerException

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.llm import LLM
from hspec_trt.runtime.results import CompletionOutput
from hspec_trt.serving.triton.repository import ExportOptions, export_repository
from tests.support.triton_server import SCRIPT, TritonServer, arrays_of, joined, stop, triton_server

pytestmark = pytest.mark.slow

GREEDY = {"temperature": 0.0, "max_tokens": 20}
SAMPLED = {"temperature": 0.9, "seed": 11, "top_k": 30, "max_tokens": 60}
EXAMPLES = Path(__file__).parents[2] / "examples" / "triton"
LONG = {"max_tokens": 390, "ignore_eos": True, "drafts": "off", "temperature": 0.0}


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    models = shutil.copytree(repository, tmp_path_factory.mktemp("served") / "models")
    with triton_server(models, tmp_path_factory.mktemp("log") / "server.log") as running:
        yield running


Variant = Callable[..., str]


@pytest.fixture(scope="module")
def variant(server: TritonServer, tiny_engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Variant:
    """Loads the text model, exported with other options, under a name of its own."""

    def load(name: str, code: str = "", **options: object) -> str:
        if not (server.repository / name).exists():
            folder = tmp_path_factory.mktemp(name) / "r"
            settings = replace(ExportOptions(num_threads=1, kv_cache_memory=1 << 24), **options)  # type: ignore[arg-type]
            export_repository(tiny_engine, folder, settings)
            config = folder / "hspec" / "config.pbtxt"
            config.write_text(config.read_text().replace('name: "hspec"', f'name: "{name}"'))
            if code:
                (folder / "hspec" / "1" / "model.py").write_text(code)
            shutil.move(folder / "hspec", server.repository / name)
            server.load(name)
        return name

    return load


FINISH_REASONS = {"eos": "stop", "length": "length", None: "none"}


def expected(reference: LLM, prompt: str, **options: object) -> CompletionOutput:
    return reference.generate(prompt, SamplingParams(**options)).outputs[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["hspec", "ensemble"])
@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_http_generate(model: str, options: dict[str, object], server: TritonServer, reference: LLM) -> None:
    want = expected(reference, "the sea", **options)
    body = {"text_input": "the sea", "exclude_input_in_output": True, "bad_words": "", "stop_words": "", **options}
    got = server.generate(model, return_perf_metrics=True, id="a7", **body)
    assert got["text_output"] == want.text
    assert got["finish_reason"] == "length"
    assert got["total_draft_tokens"] >= got["total_accepted_draft_tokens"] >= 0
    assert got["id"] == "a7"


@pytest.mark.parametrize("model", ["hspec", "ensemble"])
@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_http_stream(model: str, options: dict[str, object], server: TritonServer, reference: LLM) -> None:
    events = server.generate_stream(model, text_input="lighthouse", stream=True, **options)
    assert "".join(event["text_output"] for event in events) == expected(reference, "lighthouse", **options).text
    assert len(events) > 1


@pytest.mark.parametrize("model", ["hspec", "ensemble"])
def test_grpc_stream(model: str, server: TritonServer, reference: LLM) -> None:
    want = expected(reference, "été", **SAMPLED)
    with server.stream() as stream:
        stream.send(model, arrays_of(text_input="été", stream=True, return_log_probs=True, **SAMPLED))
        responses = stream.rest()
    assert joined(responses) == want.text
    logprobs = [value for one in responses for value in one["output_log_probs"].reshape(-1).tolist()]
    np.testing.assert_array_equal(np.array(logprobs, np.float32), np.array(want.logprobs, np.float32))
    assert responses[0]["batch_index"].tolist() == [[0]]
    assert responses[-1]["finish_reason"].item().decode() == FINISH_REASONS[want.finish_reason]


def test_a_conversation(server: TritonServer, reference: LLM) -> None:
    messages = [{"role": "user", "content": "hi"}]
    want = reference.chat(messages, SamplingParams(temperature=0.0, max_tokens=20)).outputs[0].text
    assert server.generate("hspec", messages=json.dumps(messages), **GREEDY)["text_output"] == want


def test_outputs_asked_for_by_name(server: TritonServer) -> None:
    names = ("text_output", "acceptance_rate", "first_token_time_ns")
    with server.stream() as stream:
        stream.send("hspec", arrays_of(text_input="x", **GREEDY), outputs=names)
        (response,) = stream.rest()
    assert set(response) == set(names)


def test_token_ids_in_and_out(server: TritonServer, reference: LLM) -> None:
    ids = reference.encode("the sea")
    want = reference.generate(ids, SamplingParams(temperature=0.0, max_tokens=20)).outputs[0].token_ids
    arrays = {
        "input_ids": np.array([ids], np.int32),
        "input_lengths": np.array([[len(ids)]], np.int32),
        "request_output_len": np.array([[20]], np.int32),
        "temperature": np.zeros((1, 1), np.float32),
    }
    with server.stream() as stream:
        stream.send("tensorrt_llm", arrays)
        (whole,) = stream.rest()
        assert whole["output_ids"].tolist() == [[ids + want]]
        assert whole["sequence_length"].tolist() == [[len(ids) + 20]]
        stream.send("tensorrt_llm", {**arrays, "streaming": np.array([[True]])})
        chunks = stream.rest()
    assert [token for one in chunks for token in one["output_ids"].reshape(-1).tolist()] == want


def test_several_prompts_in_one_request(server: TritonServer, reference: LLM) -> None:
    prompts = ["one", "two", "three"]
    arrays = {
        "text_input": np.array([[p.encode()] for p in prompts], np.object_),
        "max_tokens": np.array([[5], [6], [7]], np.int32),
        "temperature": np.zeros((3, 1), np.float32),
    }
    wants = [
        expected(reference, p, temperature=0.0, max_tokens=n).text for p, n in zip(prompts, (5, 6, 7), strict=True)
    ]
    with server.stream() as stream:
        stream.send("hspec", arrays)
        (response,) = stream.rest()
    assert [text.decode() for text in response["text_output"].tolist()] == wants


def test_steps_of_the_ensemble_alone(server: TritonServer, reference: LLM) -> None:
    arrays = {
        "QUERY": np.array([[b"the sea"], [b"a"]], np.object_),
        "REQUEST_OUTPUT_LEN": np.array([[4], [5]], np.int32),
        "STOP_WORDS_DICT": np.array([[b"ab", b"c"], [b"d", b""]], np.object_),
        "EMBEDDING_BIAS_WORDS": np.array([[b"b"], [b"b"]], np.object_),
        "EMBEDDING_BIAS_WEIGHTS": np.array([[1.5], [2.5]], np.float32),
    }
    got = server.infer("preprocessing", arrays)
    ids, short, b = reference.encode("the sea"), reference.encode("a"), reference.encode("b")[0]
    assert got["INPUT_ID"].tolist() == [ids, short + [0] * (len(ids) - 1)]
    assert got["REQUEST_INPUT_LEN"].tolist() == [[len(ids)], [1]]
    assert got["REQUEST_OUTPUT_LEN"].tolist() == [[4], [5]]
    words = [reference.encode(word)[0] for word in "abcd"]
    assert got["STOP_WORDS_IDS"].tolist() == [[words[:3], [2, 3, -1]], [[words[3], 0, 0], [1, -1, -1]]]
    assert got["EMBEDDING_BIAS"][:, b].tolist() == [1.5, 2.5]
    assert np.count_nonzero(got["EMBEDDING_BIAS"]) == 2
    padded = np.array([[ids], [short + [0] * (len(ids) - 1)]], np.int32)
    lengths = np.array([[len(ids)], [1]], np.int32)
    got = server.infer("postprocessing", {"TOKENS_BATCH": padded, "SEQUENCE_LENGTH": lengths})
    assert got["OUTPUT"].tolist() == [b"the sea", b"a"]


def test_stop_words_in_the_ensemble_match_text(server: TritonServer, reference: LLM) -> None:
    """Case F5: the word falls anywhere in the tokens, and the text is cut before it."""
    text = expected(reference, "the sea", **GREEDY).text
    word = text[4:6]
    for model in ("hspec", "ensemble"):
        body = {"text_input": "the sea", "stop_words": ["zzz", word], "exclude_input_in_output": True, **GREEDY}
        got = server.generate(model, **body)
        assert got["text_output"] == text[: text.index(word)]
        assert (got["finish_reason"], got["stop_reason"]) == ("stop", word)


def test_llmapi_tensors_without_batch_dimension(variant: Variant, server: TritonServer, reference: LLM) -> None:
    model = variant("hspec_llmapi", interface="llmapi")
    want = expected(reference, "the sea", **SAMPLED)
    options = {"temperature": 0.9, "seed": 11, "top_k": 30, "max_tokens": 60}
    named = {f"sampling_param_{name}": value for name, value in options.items()}
    with server.stream() as stream:
        arrays = arrays_of(batched=False, text_input="the sea", streaming=True, return_finish_reason=True, **named)
        stream.send(model, arrays)
        responses = stream.rest()
    assert joined(responses) == want.text
    assert responses[-1]["finish_reason"].tolist() == [b"length"]
    got = server.generate(model, text_input="the sea", **named)
    assert got["text_output"] == want.text
    mixed = server.generate(model, text_input="the sea", **options)
    assert mixed["text_output"] == want.text


def test_not_decoupled(variant: Variant, server: TritonServer, reference: LLM) -> None:
    model = variant("hspec_unary", decoupled=False)
    want = expected(reference, "the sea", **SAMPLED).text
    got = server.infer(model, arrays_of(text_input="the sea", **SAMPLED))
    assert [text.decode() for text in got["text_output"].tolist()] == [want]
    assert server.generate(model, text_input="the sea", **SAMPLED)["text_output"] == want
    body = {
        "inputs": [
            {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["the sea"]},
            {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [20]},
            {"name": "temperature", "shape": [1, 1], "datatype": "FP32", "data": [0.0]},
        ]
    }
    status, text = server.call("POST", f"/v2/models/{model}/infer", body)
    assert status == 200, text
    outputs = {one["name"]: one["data"] for one in json.loads(text)["outputs"]}
    assert outputs["text_output"] == [expected(reference, "the sea", **GREEDY).text]
    with pytest.raises(InferenceServerException, match="R426"):
        server.infer(model, arrays_of(text_input="x", stream=True))


def test_sixteen_clients_join_and_leave(server: TritonServer, reference: LLM) -> None:
    """Each gets what it gets alone; the engine has 8 rows."""
    prompts = [f"client {number} says " + "ab" * (number % 5) for number in range(48)]
    options = [{"max_tokens": 5 + 7 * (n % 9), "temperature": [0.0, 0.8][n % 2], "seed": n} for n in range(48)]
    wants = [expected(reference, p, **o).text for p, o in zip(prompts, options, strict=True)]

    def client(number: int) -> list[str]:
        found = []
        with server.stream() as stream:
            for turn in range(number, 48, 16):
                time.sleep(0.01 * (number % 4))
                stream.send("hspec", arrays_of(text_input=prompts[turn], stream=turn % 3 > 0, **options[turn]))
                found.append(joined(stream.rest()))
        return found

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(client, range(16)))
    assert found == [wants[number::16] for number in range(16)]


def active(server: TritonServer, model: str = "hspec", instance: str = "0") -> float:
    return server.metric("nv_trt_llm_request_metrics", model=model, request_type="active", instance=instance)


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def cancelled(server: TritonServer, model: str = "hspec") -> float:
    try:
        return server.metric("hspec_answers", model=model, finish_reason="cancelled")
    except AssertionError:
        return 0.0


def test_closing_the_stream_cancels(server: TritonServer) -> None:
    before = cancelled(server)
    with server.stream() as stream:
        stream.send("hspec", arrays_of(text_input="x", stream=True, **LONG))
        stream.next()
        stream.cancel()
        wait_until(lambda: cancelled(server) == before + 1)
        wait_until(lambda: active(server) == 0)


def test_a_deadline_cancels(variant: Variant, server: TritonServer) -> None:
    model = variant("hspec_unary", decoupled=False)
    server.infer(model, arrays_of(text_input="x", max_tokens=1))
    before = cancelled(server, model)
    arrays = arrays_of(text_input="x", **LONG)
    with pytest.raises(InferenceServerException, match="Deadline"):
        server.infer(model, arrays, timeout=0.05)
    wait_until(lambda: cancelled(server, model) == before + 1)
    before = cancelled(server)
    with server.stream(timeout=0.1) as stream:
        stream.send("hspec", arrays_of(text_input="x", stream=True, **LONG))
        with pytest.raises(InferenceServerException, match="Deadline"):
            while True:
                stream.next()
    wait_until(lambda: cancelled(server) == before + 1)


def test_a_dropped_http_stream_cancels(server: TritonServer) -> None:
    before = cancelled(server)
    body = json.dumps({"text_input": "x", "stream": True, **LONG})
    head = f"POST /v2/models/hspec/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.http)) as connection:
        connection.sendall((head + body).encode())
        assert b"data:" in connection.recv(65536) + connection.recv(65536)
    wait_until(lambda: cancelled(server) == before + 1)


def test_a_stop_request_cancels_by_id(server: TritonServer) -> None:
    with server.stream() as stream:
        stream.send("hspec", arrays_of(text_input="x", stream=True, **LONG), request_id="r9")
        stream.next()
        answer = threading.Thread(target=lambda: server.generate("hspec", text_input="", stop=True, id="r9"))
        answer.start()
        responses = stream.rest()
        answer.join()
    assert responses[-1]["finish_reason"].tolist() == [b"cancelled"]
    assert len(responses) < 380


@pytest.mark.parametrize("model", ["hspec", "ensemble"])
def test_clients_that_give_up_at_any_time_do_no_harm(model: str, server: TritonServer, reference: LLM) -> None:
    """Case F11 on the server itself, which crashes when a model asks it about a request that is over."""

    def client(number: int) -> None:
        own = random.Random(number)
        for _ in range(12):
            with server.stream() as stream:
                prompt = "a" * own.randint(1, 60)
                tokens = own.choice([1, 2, 5, 40])
                stream.send(model, arrays_of(text_input=prompt, stream=own.random() < 0.8, max_tokens=tokens))
                time.sleep(own.random() * 0.03)
                stream.cancel()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(client, range(8)))
    wait_until(lambda: active(server) == active(server, "tensorrt_llm") == 0)
    assert server.generate("hspec", text_input="the sea", **GREEDY)["text_output"] == expected(
        reference, "the sea", **GREEDY
    ).text  # fmt: skip


ERRORS = {
    "R201": {"temperature": -1.0},
    "R101": {"max_tokens": 4000},
    "R102": {"text_input": ""},
    "R210": {"beam_width": 4},
    "R421": {"max_tokens": 4, "sampling_param_max_tokens": 5},
}


@pytest.mark.parametrize("code", ERRORS)
def test_a_bad_request_is_told_why_and_others_go_on(code: str, server: TritonServer) -> None:
    with server.stream() as other, server.stream() as stream:
        other.send("hspec", arrays_of(text_input="x", stream=True, max_tokens=60, ignore_eos=True))
        bad = {"text_input": "x", **ERRORS[code]}
        status, text = server.call("POST", "/v2/models/hspec/generate", bad)
        assert (status, f"error[{code}]" in text) == (400, True), text
        stream.send("hspec", arrays_of(**bad))
        with pytest.raises(InferenceServerException, match=code) as caught:
            stream.next()
        assert caught.value.status() in ("StatusCode.INVALID_ARGUMENT", None)
        stream.send("hspec", arrays_of(text_input="x", **GREEDY))
        assert joined(stream.rest()), "the same stream serves the next request"
        assert len(other.rest()) > 1


def test_the_status_of_a_bad_request_over_unary_grpc(variant: Variant, server: TritonServer) -> None:
    model = variant("hspec_unary", decoupled=False)
    with pytest.raises(InferenceServerException, match="R201") as caught:
        server.infer(model, arrays_of(text_input="x", temperature=-1.0))
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_what_triton_itself_refuses(server: TritonServer) -> None:
    assert server.call("POST", "/v2/models/ensemble/generate", {"max_tokens": 4})[0] == 400
    assert server.call("POST", "/v2/models/none/generate", {"text_input": "x"})[0] in (400, 404)
    assert server.call("POST", "/v2/models/hspec/generate", '{"text_input": ')[0] >= 400
    with server.stream() as stream:
        stream.send("hspec", {"text_input": np.array([b"x"], np.object_)})
        with pytest.raises(InferenceServerException, match="shape"):
            stream.next()
    assert server.generate("hspec", text_input="x", **GREEDY)["text_output"]


def test_a_full_queue_is_unavailable(variant: Variant, server: TritonServer) -> None:
    model = variant("hspec_full", max_queue_size=0)
    with server.stream() as stream:
        for _ in range(8):
            stream.send(model, arrays_of(text_input="x", stream=True, **LONG))
        wait_until(lambda: active(server, model) == 8)
        status, text = server.call("POST", f"/v2/models/{model}/generate", {"text_input": "x"})
        assert (status, "R420" in text) == (400, True), text
        stream.cancel()
    wait_until(lambda: active(server, model) == 0)
    server.unload(model)


def test_instances_share_the_work(variant: Variant, server: TritonServer, reference: LLM) -> None:
    model = variant("hspec_pair", instances=2, kv_cache_memory=4 << 20)
    memory = [server.metric("nv_trt_llm_kv_cache_block_metrics", model=model, kv_cache_block_type="max", instance=i)
              for i in ("0", "1")]  # fmt: skip
    whole = server.metric("nv_trt_llm_kv_cache_block_metrics", model="hspec", kv_cache_block_type="max", instance="0")
    assert memory[0] == memory[1] < whole
    with server.stream() as stream:
        for _ in range(6):
            stream.send(model, arrays_of(text_input="x", stream=True, **LONG))
        wait_until(lambda: [active(server, model, i) for i in ("0", "1")] == [3, 3])
        stream.cancel()
    wait_until(lambda: [active(server, model, i) for i in ("0", "1")] == [0, 0])
    want = expected(reference, "the sea", **GREEDY).text
    assert [server.generate(model, text_input="the sea", **GREEDY)["text_output"] for _ in range(4)] == [want] * 4
    server.unload(model)


def test_metrics(server: TritonServer) -> None:
    labels = {"model": "hspec", "version": "1", "instance": "0"}
    new = server.metric("hspec_tokens", kind="new", **labels)
    count = server.metric("nv_llm_output_token_len_count", **labels)
    server.generate("hspec", text_input="the sea", **GREEDY)
    wait_until(lambda: server.metric("hspec_tokens", kind="new", **labels) == new + 20)
    assert server.metric("nv_llm_output_token_len_count", **labels) == count + 1
    assert server.metric("nv_trt_llm_request_metrics", request_type="max", **labels) == 8
    pages = {kind: server.metric("nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type=kind, **labels)
             for kind in ("max", "free", "used", "tokens_per")}  # fmt: skip
    assert pages["free"] + pages["used"] == pages["max"] > 0
    assert pages["tokens_per"] == 16
    assert server.metric("hspec_mean_accepted_length", **labels) >= 1
    assert server.metric("hspec_engine_ready", **labels) == 1
    assert server.metric("hspec_time_to_first_token_seconds_count", **labels) == count + 1


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("grpc_stream.py", ["the sea", "--url", "127.0.0.1:{grpc}", "--max-tokens", "20"]),
        ("http_generate.py", ["the sea", "--url", "http://127.0.0.1:{http}", "--max-tokens", "20"]),
        ("concurrent_load.py", ["--url", "127.0.0.1:{grpc}", "--requests", "6", "--concurrency", "3"]),
    ],
)
def test_the_client_examples(script: str, arguments: list[str], server: TritonServer, reference: LLM) -> None:
    given = [one.format(grpc=server.grpc, http=server.http) for one in arguments]
    done = subprocess.run([sys.executable, str(EXAMPLES / script), *given], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    shown = done.stdout.decode()
    if script == "concurrent_load.py":
        assert shown.startswith("6 requests, 3 at a time")
        assert float(shown.split("tokens/s")[1].split()[0]) > 0
    else:
        assert shown.count(expected(reference, "the sea", **GREEDY).text) == (2 if "http" in script else 1)
        assert "tokens a step" in shown


def test_unloading_drains_and_loading_again_serves(server: TritonServer, reference: LLM) -> None:
    want = expected(reference, "x", **LONG).text
    with server.stream() as stream:
        stream.send("hspec", arrays_of(text_input="x", stream=True, **LONG))
        stream.next()
        server.unload("hspec")
        responses = stream.rest()
        assert responses[-1]["finish_reason"].tolist() == [b"length"]
        assert want.endswith(joined(responses))
    wait_until(lambda: not server.ready("hspec"))
    assert server.call("POST", "/v2/models/hspec/generate", {"text_input": "x"})[0] == 404
    server.load("hspec")
    assert server.ready("hspec")
    body = {"text_input": "the sea", **GREEDY}
    assert server.generate("hspec", **body)["text_output"] == expected(reference, "the sea", **GREEDY).text


FAULTY_CODE = '''
import triton_python_backend_utils as pb_utils
from hspec_trt.errors import RequestError
from hspec_trt.serving.triton.hspec import HspecModel


class Dying:
    """A session that fails from the step on that runs token 5."""

    def __init__(self, session):
        self._session, self._dead = session, False

    def __getattr__(self, name):
        return getattr(self._session, name)

    def step(self, inputs):
        self._dead = self._dead or bool((inputs.input_ids[:2] == 5).all())
        if self._dead:
            raise RequestError("R302", "the step failed: CUDA error 700")
        return self._session.step(inputs)


class TritonPythonModel:
    def initialize(self, args):
        self.model = HspecModel(pb_utils, args)
        watched = self.model._engine._session
        watched._session = Dying(watched._session)

    def execute(self, requests):
        return self.model.execute(requests)

    def finalize(self):
        self.model.finalize()
'''


def test_a_dead_session_makes_the_model_not_ready(variant: Variant, server: TritonServer, reference: LLM) -> None:
    deadly = reference.tokenizer.decode([5, 5]) if reference.tokenizer else ""
    model = variant("hspec_dying", FAULTY_CODE)
    assert server.generate(model, text_input="the sea", **GREEDY)["text_output"]
    status, text = server.call("POST", f"/v2/models/{model}/generate", {"text_input": deadly, "drafts": "off"})
    assert (status, "R302" in text) == (400, True), text
    wait_until(lambda: not server.ready(model))
    assert server.ready("hspec")
    server.load(model)
    assert server.ready(model)
    assert server.generate(model, text_input="the sea", **GREEDY)["text_output"]
    server.unload(model)


def test_shutdown_with_requests_in_flight(repository: Path, tmp_path: Path) -> None:
    """Within 10 s; a server of its own, with the text model alone."""
    models = tmp_path / "models"
    shutil.copytree(repository / "hspec", models / "hspec")
    with triton_server(models, tmp_path / "server.log") as server, server.stream() as stream:
        for number in range(20):
            stream.send("hspec", arrays_of(text_input="x" * number + "y", stream=True, **LONG))
        stream.next()
        assert stop(server) < 10
    assert not processes_of(server)


def processes_of(server: TritonServer) -> list[str]:
    """What still runs of the server and its models."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == server.pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found


def test_models_go_with_a_server_that_is_killed(repository: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    shutil.copytree(repository / "hspec", models / "hspec")
    with triton_server(models, tmp_path / "server.log") as server, server.stream() as stream:
        stream.send("hspec", arrays_of(text_input="x", stream=True, **LONG))
        stream.next()
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not processes_of(server))


def test_a_server_that_cannot_load_the_model_says_why(repository: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    shutil.copytree(repository / "hspec", models / "hspec")
    config = models / "hspec" / "config.pbtxt"
    config.write_text(config.read_text().replace("/engine", "/nowhere"))
    command = [sys.executable, str(SCRIPT), "start", str(models), "--free-ports", "--log", str(tmp_path / "log")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "error[L052]" in done.stderr
    assert "Traceback" not in done.stderr
