# SPDX-License-Identifier: Apache-2.0
"""How the server ends, who may use it, and what it says of itself."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import openai
import pytest

from hspec_trt.errors import LoadError
from hspec_trt.runtime.llm import LLM
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.serving.openai.options import ServeOptions
from hspec_trt.serving.openai.server import open_socket, serve
from hspec_trt.serving.openai.service import Service
from tests.support.openai_server import Server, serving
from tests.support.waiting import wait_until
from tests.unit.cli.test_run import run

C = "/v1/completions"
WRONG_KEYS = (
    "", "Bearer", "Bearer ", "Bearer secret", "Bearer secret-11", "Basic secret-1", "secret-1", "Bearer \xff",
)  # fmt: skip
LONG = {"prompt": "hello", "max_tokens": 390, "ignore_eos": True, "drafts": "off", "seed": 1}


def started(server: Server) -> None:
    wait_until(lambda: server.metric("hspec_num_requests_running") > 0)


def read_stream(connection: socket.socket) -> bytes:
    data = b""
    while part := connection.recv(65_536):
        data += part
    return data


def test_a_drain_finishes_what_is_open(tiny_engine: Path, tmp_path: Path) -> None:
    with serving(tiny_engine, tmp_path / "log") as server:
        stream, whole = server.connect(C, LONG | {"stream": True}), server.connect(C, LONG)
        started(server)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.lines("draining"))
        with pytest.raises(OSError):
            wait_until(lambda: socket.create_connection(("127.0.0.1", server.port), 5).close())
        streamed, at_once = read_stream(stream), read_stream(whole)
        assert server.process.wait(60) == 0
    assert streamed.count(b"data: ") > 100
    assert b"data: [DONE]" in streamed
    assert json.loads(at_once.split(b"\r\n\r\n", 1)[1])["usage"]["completion_tokens"] == 390
    assert b"Traceback" not in (tmp_path / "log").read_bytes()


def test_a_drain_that_takes_too_long_tells_its_clients(tiny_engine: Path, tmp_path: Path) -> None:
    with serving(tiny_engine, tmp_path / "log", "--drain-timeout", "0") as server:
        many = LONG | {"n": 64}
        stream, whole = server.connect(C, many | {"stream": True}), server.connect(C, many)
        started(server)
        assert server.stop() == 0
        streamed, at_once = read_stream(stream), read_stream(whole)
    assert b'"code": "R440"' in streamed
    assert streamed.rstrip().endswith(b"[DONE]\n\n\r\n0")
    assert b" 503 " in at_once.split(b"\r\n")[0]
    assert b"R440" in at_once
    assert {line["outcome"] for line in server.lines("request")} == {"failed"}


def test_a_second_signal_ends_it_at_once(tiny_engine: Path, tmp_path: Path) -> None:
    with serving(tiny_engine, tmp_path / "log") as server:
        stream = server.connect(C, LONG | {"n": 200, "stream": True})
        started(server)
        start = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: server.lines("draining"))
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 0
        assert time.monotonic() - start < 15
        stream.close()


@pytest.mark.parametrize("how", ["option", "environment", "file"])
def test_api_key(how: str, tiny_engine: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("other\nsecret-1\n")
    options = {"option": ["--api-key", "other", "--api-key", "secret-1"], "file": ["--api-key-file", str(keys)]}
    env = {"HSPEC_TRT_API_KEY": "secret-1"} if how == "environment" else None
    body = {"prompt": "hello", "max_tokens": 2}
    with serving(tiny_engine, tmp_path / "log", *options.get(how, []), env=env) as server:
        for key in ("secret-1",) if how == "environment" else ("secret-1", "other"):
            assert server.post(C, body, headers={"authorization": f"Bearer {key}"}).status == 200
        for header in WRONG_KEYS:
            refused = server.post(C, body, headers={"authorization": header} if header else {})
            assert (refused.status, refused.code) == (401, "R435"), header
            assert refused.headers["www-authenticate"] == "Bearer"
        for path in ("/metrics", "/v1/models", "/openapi.json", "/nothing"):
            assert server.ask("GET", path).status == 401
        assert server.ask("GET", "/health").status == 200
        assert server.post(C, b"x" * 100_000).status == 401  # before the body is looked at
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                client.models.list()
            assert client.with_options(api_key="secret-1").models.list().data
    assert "secret-1" not in (tmp_path / "log").read_text()


def test_a_template_and_a_parser_of_ones_own(tiny_engine: Path, tmp_path: Path) -> None:
    template = tmp_path / "own.jinja"
    template.write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}{{ tools | length if tools else '' }}")
    arguments = ["--chat-template", str(template), "--tool-parser", "llama3_json", "--metrics-prefix", "vllm:"]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"enum": [1]}}}]
    body = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 60, "return_token_ids": True}
    with serving(tiny_engine, tmp_path / "log", *arguments) as server:
        plain = server.post("/v1/chat/completions", body).json
        assert plain["usage"]["prompt_tokens"] == 4
        called = server.post("/v1/chat/completions", body | {"tools": tools, "tool_choice": "required"}).json
        (call,) = called["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "f", "arguments": "1"}
        assert called["usage"]["prompt_tokens"] == 5
        assert server.metric("vllm:request_success_total") == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--port", "70000"], "L040"),
        (["--max-answers", "0"], "L040"),
        (["--api-key", "a b"], "L040"),
        (["--api-key-file", "/nothing/here"], "L040"),
        (["--metrics-prefix", "1x"], "L040"),
        (["--read-timeout", "0"], "L040"),
        (["--chat-template", "/nothing/here"], "L041"),
        (["--host", "192.0.2.1"], "L043"),
        (["--trace", "/nothing/here"], "L037"),
    ],
)
def test_options_that_cannot_be(arguments: list[str], code: str, tiny_engine: Path) -> None:
    command = [sys.executable, "-m", "hspec_trt.cli", "serve", str(tiny_engine), "--port", "0", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert f"error[{code}]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken(tiny_engine: Path, server: Server) -> None:
    command = [sys.executable, "-m", "hspec_trt.cli", "serve", str(tiny_engine), "--port", str(server.port)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "error[L043]" in done.stderr) == (2, True)


def test_a_port_that_another_server_takes_while_the_engine_loads(tiny_engine: Path) -> None:
    with open_socket(ServeOptions(port=0)) as first:
        options = ServeOptions(port=first.getsockname()[1])
        with open_socket(options) as second, LLM(tiny_engine, RuntimeOptions(num_threads=1)) as llm:
            first.listen()
            with pytest.raises(LoadError, match=f"L043.*cannot listen.*--port {options.port}"):
                serve(Service(llm, options), second, lambda: pytest.fail("it says that it serves"))


def test_health_and_version(server: Server) -> None:
    assert server.ask("GET", "/health").json == {"status": "ok"}
    assert set(server.ask("GET", "/version").json) == {"version"}
    paths = server.ask("GET", "/openapi.json").json["paths"]
    assert {C, "/v1/chat/completions", "/v1/models", "/metrics", "/health"} <= set(paths)


def test_run_writes_a_trace(tiny_engine: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    done = run(str(tiny_engine), "--prompt", "hi", "--max-tokens", "5", "--ignore-eos", "--trace", str(trace))
    assert done.returncode == 0, done.stderr
    steps = [event["args"] for event in json.loads(trace.read_text()) if event["name"] == "step"]
    assert sum(step["emitted"] for step in steps) == 5
