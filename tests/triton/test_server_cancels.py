# SPDX-License-Identifier: Apache-2.0
"""Clients of a real Triton Inference Server that give up."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from hspec_trt.runtime.llm import LLM
from tests.support.triton_checks import GREEDY, LONG, Variant, active, cancelled, expected, wait_until
from tests.support.triton_server import TritonServer, arrays_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def test_closing_the_stream_cancels(server: TritonServer) -> None:
    before = cancelled(server)
    with server.stream() as stream:
        stream.send("hspec", arrays_of(text_input="x", stream=True, **LONG))
        stream.next()
        stream.cancel()
        wait_until(lambda: cancelled(server) == before + 1)
        wait_until(lambda: active(server) == 0)


SLOW_CODE = '''
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from hspec_trt.serving.triton.hspec import HspecModel


class Slow:
    """Steps of a quarter of a second, each written down with the time of its start and its rows."""

    def __init__(self, session, steps):
        self._session, self._steps = session, steps

    def __getattr__(self, name):
        return getattr(self._session, name)

    def step(self, inputs):
        rows = np.count_nonzero(np.diff(inputs.cu_query_lens))
        print(time.monotonic(), rows, file=self._steps, flush=True)
        time.sleep(0.25)
        return self._session.step(inputs)


class TritonPythonModel:
    def initialize(self, args):
        self.model = HspecModel(pb_utils, args)
        watched = self.model._engine._session
        watched._session = Slow(watched._session, Path(args["model_repository"], "steps").open("w"))

    def execute(self, requests):
        return self.model.execute(requests)

    def finalize(self):
        self.model.finalize()
'''


def test_a_cancelled_request_leaves_within_one_step(variant: Variant, server: TritonServer) -> None:
    """Case F10: of the steps that begin after the client gave up, at most one still has its row; another's goes on."""
    model = variant("hspec_slow", SLOW_CODE)

    def rows_of_steps(since: float) -> list[int]:
        steps = [line.split() for line in (server.repository / model / "steps").read_text().splitlines()]
        return [int(rows) for began, rows in steps if float(began) > since]

    request = arrays_of(text_input="x", stream=True, **LONG)
    with server.stream() as other:
        other.send(model, request)
        for pause in (0.0, 0.1, 0.2):
            with server.stream() as stream:
                stream.send(model, request)
                stream.next()
                began = time.monotonic()
                wait_until(lambda began=began: rows_of_steps(began)[-1:] == [2])  # type: ignore[misc]
                time.sleep(pause)
                stream.cancel()
                gave_up = time.monotonic()
            wait_until(lambda gave_up=gave_up: len(rows_of_steps(gave_up)) >= 4)  # type: ignore[misc]
            first, *later = rows_of_steps(gave_up)
            assert first in (1, 2)
            assert set(later) == {1}, later
    server.unload(model)


def test_a_deadline_cancels(variant: Variant, server: TritonServer) -> None:
    model = variant("hspec_unary", decoupled=False)
    server.infer(model, arrays_of(text_input="x", max_tokens=1))
    before = cancelled(server, model)
    arrays = arrays_of(text_input="x", **LONG)
    with pytest.raises(InferenceServerException, match="Deadline"):
        server.infer(model, arrays, timeout=1.0)
    wait_until(lambda: cancelled(server, model) == before + 1)
    before = cancelled(server)
    with server.stream(timeout=1.0) as stream:
        stream.send("hspec", arrays_of(text_input="x", stream=True, **LONG))
        with pytest.raises(InferenceServerException, match="Deadline"):
            while True:
                stream.next()
    wait_until(lambda: cancelled(server) == before + 1)


def test_a_dropped_http_stream_cancels(server: TritonServer) -> None:
    before = cancelled(server)
    body = json.dumps({"text_input": "x", "stream": True, **LONG})
    head = f"POST /v2/models/hspec/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.http), timeout=60) as connection:
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
    assert len(responses) < LONG["max_tokens"] - 100


@pytest.mark.parametrize("model", ["hspec", "ensemble"])
def test_clients_that_give_up_at_any_time_do_no_harm(model: str, server: TritonServer, reference: LLM) -> None:
    """Case F11 on the server itself, which crashes when a model asks it about a request that is over."""
    command = [sys.executable, "-m", "tests.support.impatient_clients", str(server.grpc), model]
    clients = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert clients.returncode == 0, clients.stderr
    wait_until(lambda: active(server) == active(server, "tensorrt_llm") == 0)
    assert server.generate("hspec", text_input="the sea", **GREEDY)["text_output"] == expected(
        reference, "the sea", **GREEDY
    ).text  # fmt: skip
