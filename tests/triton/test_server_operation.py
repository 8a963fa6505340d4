# SPDX-License-Identifier: Apache-2.0
"""Running a real Triton Inference Server: instances, metrics, unloading, stopping; and the client examples."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from hspec_trt.runtime.llm import LLM
from tests.support.triton_checks import GREEDY, LONG, Variant, active, expected, wait_until
from tests.support.triton_server import TritonServer, arrays_of, joined, stop, triton_server

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples" / "triton"


def test_instances_share_the_work(variant: Variant, server: TritonServer, reference: LLM) -> None:
    model = variant("hspec_pair", instances=2, kv_cache_memory=1 << 25)
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
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *given], check=False, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    shown = done.stdout.decode()
    if script == "concurrent_load.py":
        assert shown.startswith("6 requests, 3 at a time")
        assert float(shown.split("tokens/s")[1].split()[0]) > 0
    else:
        assert shown.count(expected(reference, "the sea", **GREEDY).text) == (2 if "http" in script else 1)
        assert "tokens a step" in shown


def test_unloading_drains_and_loading_again_serves(server: TritonServer, reference: LLM) -> None:
    some = {**LONG, "max_tokens": 1000}
    want = expected(reference, "x", **some).text
    with server.stream() as stream:
        stream.send("hspec", arrays_of(text_input="x", stream=True, **some))
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
