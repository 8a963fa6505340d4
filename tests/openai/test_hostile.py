# SPDX-License-Identifier: Apache-2.0
"""Clients that misbehave: huge and slow bodies, readers that stop, connections that end early, garbage, crowds."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from hspec_trt import LLM, SamplingParams
from tests.openai.conftest import MAX_ANSWERS, MAX_BODY
from tests.support.openai_server import Server
from tests.support.waiting import wait_until

C, CHAT = "/v1/completions", "/v1/chat/completions"
LONG: dict[str, Any] = {"prompt": "hello", "max_tokens": 390, "ignore_eos": True, "drafts": "off", "seed": 1}
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(autouse=True)
def still_good(server: Server, reference: LLM) -> Any:
    """After every test: nothing runs, nothing is kept, and a good request gets its answer."""
    before = server.num_sockets()
    yield
    server.wait_until_idle()
    assert server.metric("hspec_kv_cache_pages", state="used") == 0
    want = reference.generate("hello", SamplingParams(seed=1, max_tokens=8)).outputs[0].text
    assert server.post(C, {"prompt": "hello", "seed": 1, "max_tokens": 8}).json["choices"][0]["text"] == want
    wait_until(lambda: server.num_sockets() <= before)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def last_line(server: Server, request_id: str) -> dict[str, Any]:
    """The log line of a request."""

    def find() -> list[dict[str, Any]]:
        return [line for line in server.lines("request") if line["request_id"] == request_id]

    wait_until(find)
    return find()[0]


def open_stream(server: Server, body: dict[str, Any], request_id: str) -> socket.socket:
    """Start a stream and read until its first token has come."""
    data = json.dumps(body | {"stream": True}).encode()
    made = socket.create_connection(("127.0.0.1", server.port), 60)
    made.sendall(HEAD + f"X-Request-Id: {request_id}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    seen = b""
    while seen.count(b"data: ") < 2:
        seen += made.recv(4096)
    return made


@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_a_client_that_goes_away_ends_its_request(how: str, server: Server) -> None:
    """Case F10 over HTTP: the answer ends within a step or two of the news, far from its end."""
    connection = open_stream(server, LONG, f"gone-{how}")
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half":
        connection.shutdown(socket.SHUT_WR)
    else:
        connection.close()
    line = last_line(server, f"gone-{how}")
    connection.close()
    assert line["outcome"] == "disconnected"
    assert line["finish_reasons"] == ["cancelled"]
    assert line["new_tokens"] < 380


def test_a_client_that_goes_away_before_the_answer(server: Server) -> None:
    """Without a stream nothing is sent before the end, and still the request ends early."""
    for number in range(4):
        data = json.dumps(LONG).encode()
        made = socket.create_connection(("127.0.0.1", server.port), 60)
        made.sendall(HEAD + f"X-Request-Id: early-{number}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        time.sleep(0.05 * number)
        made.close()
    for number in range(4):
        line = last_line(server, f"early-{number}")
        assert (line["outcome"], line["finish_reasons"]) == ("disconnected", ["cancelled"])


def test_a_cancelled_request_stops_within_a_step(server: Server) -> None:
    """Case F10: steps that run after the server has heard of it, counted by the server itself."""
    connection = open_stream(server, LONG, "one-step")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    before = server.metric("hspec_generation_tokens_total")
    connection.close()
    wait_until(lambda: server.metric("hspec_num_requests_running") == 0)
    after = server.metric("hspec_generation_tokens_total")
    line = last_line(server, "one-step")
    assert line["new_tokens"] < 380
    time.sleep(0.3)
    assert server.metric("hspec_generation_tokens_total") == after
    assert after >= before


def test_a_reader_that_stops_is_given_up(server: Server) -> None:
    """The answer of a stalled client ends after the write timeout; others are not slower for it."""
    body = LONG | {"n": 8, "logprobs": 20, "return_token_ids": True, "stream": True}
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", server.port))
    data = json.dumps(body).encode()
    made.sendall(HEAD + f"X-Request-Id: stalled\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    made.recv(100)
    assert server.post(C, {"prompt": "x", "max_tokens": 4}).status == 200
    line = last_line(server, "stalled")
    assert line["outcome"] == "stalled", line
    made.close()


def test_a_slow_reader_gets_everything(server: Server, reference: LLM) -> None:
    want = reference.generate("hello", SamplingParams(seed=1, max_tokens=390, ignore_eos=True)).outputs[0]
    body = LONG | {"stream": True, "return_token_ids": True}
    connection = server.connect(C, body)
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        part = connection.recv(512)
        assert part
        data += part
        if len(data) < 20_000:
            time.sleep(0.01)
    connection.close()
    events = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")]
    assert [token for event in events for token in event["choices"][0]["token_ids"]] == want.token_ids


@pytest.mark.parametrize("told", [True, False])
def test_huge_bodies(told: bool, server: Server) -> None:
    """Refused by the length that is told, or once too much has come; memory does not grow with it."""
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    connection = socket.create_connection(("127.0.0.1", server.port), 60)
    sent = 0
    try:
        if told:
            connection.sendall(HEAD + b"Content-Length: 100000000000\r\n\r\n")
        else:
            connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
            while sent < 64 * MAX_BODY:
                connection.sendall(chunk)
                sent += 65_536
    except OSError:
        pass
    reply = read_all(connection)
    connection.close()
    assert sent < 64 * MAX_BODY
    assert b"413" in reply.split(b"\r\n")[0] or (not told and not reply)
    assert process.memory_info().rss - before < 24 * MAX_BODY


def test_a_body_of_the_largest_size_is_read(server: Server) -> None:
    filler = {"metadata": {"x": "y" * (MAX_BODY - 200)}}
    body = json.dumps({"prompt": "x", "max_tokens": 1} | filler).encode()
    assert MAX_BODY - 200 < len(body) <= MAX_BODY
    assert server.post(C, body).status == 200
    assert server.post(C, body + b" " * MAX_BODY).code == "R433"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (HEAD + b"Content-Length: %d\r\n\r\n", b"413"),
        (HEAD.replace(b"application/json", b"text/plain") + b"Content-Length: %d\r\n\r\n", b"415"),
    ],
    ids=["size", "type"],
)
def test_a_client_still_writing_gets_its_refusal(head: bytes, status: bytes, server: Server) -> None:
    """What is known from the head is not answered with a reset connection while the body is on its way."""
    connection = socket.create_connection(("127.0.0.1", server.port), 60)
    connection.sendall(head % (4 * MAX_BODY))
    for _ in range(4):
        time.sleep(0.2)
        connection.sendall(b" " * MAX_BODY)
    reply = read_all(connection)
    connection.close()
    assert status in reply.split(b"\r\n")[0]


def test_a_client_that_asks_first_sends_no_body(server: Server) -> None:
    """``Expect: 100-continue``: the refusal comes instead of the leave to go on."""
    connection = socket.create_connection(("127.0.0.1", server.port), 60)
    connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (4 * MAX_BODY))
    start = time.monotonic()
    reply = read_all(connection)
    connection.close()
    assert b"413" in reply.split(b"\r\n")[0]
    assert time.monotonic() - start < 1.5


def test_a_body_that_does_not_come(server: Server) -> None:
    connection = socket.create_connection(("127.0.0.1", server.port), 60)
    connection.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"prompt"')
    start = time.monotonic()
    reply = read_all(connection)
    connection.close()
    assert b" 408 " in reply.split(b"\r\n")[0]
    assert b"R434" in reply
    assert 2 < time.monotonic() - start < 30


def test_a_client_that_goes_away_within_its_body(server: Server) -> None:
    connection = socket.create_connection(("127.0.0.1", server.port), 60)
    connection.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"prompt"')
    connection.close()


GARBAGE = {
    "nothing": b"",
    "noise": bytes(range(256)) * 40,
    "tls": bytes.fromhex("16030100c8010000c403035f") + b"\0" * 60,
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no_host": b"GET / HTTP/1.1\r\n\r\n",
    "two_lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
    "length_and_chunks": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "negative_length": HEAD + b"Content-Length: -1\r\n\r\n",
    "bad_chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "huge_header": HEAD + b"X: " + b"y" * 300_000 + b"\r\n\r\n",
    "upgrade": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "path": b"GET /%00%ff/../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage(name: str, server: Server) -> None:
    connection = socket.create_connection(("127.0.0.1", server.port), 20)
    try:
        connection.sendall(GARBAGE[name])
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    reply = read_all(connection)
    connection.close()
    assert not reply or reply.startswith(b"HTTP/1.1 4"), reply[:200]


def test_requests_in_one_go_are_answered_in_order(server: Server) -> None:
    def request(seed: int, more: bytes = b"") -> bytes:
        data = json.dumps({"prompt": "hello", "seed": seed, "max_tokens": 5}).encode()
        return HEAD + more + f"Content-Length: {len(data)}\r\n\r\n".encode() + data

    connection = socket.create_connection(("127.0.0.1", server.port), 60)
    connection.sendall(request(1) + request(2) + request(3, b"Connection: close\r\n"))
    replies = [json.loads(part.split(b"\r\n\r\n", 1)[1]) for part in read_all(connection).split(b"HTTP/1.1 ")[1:]]
    connection.close()
    bodies = [{"prompt": "hello", "seed": seed, "max_tokens": 5} for seed in (1, 2, 3)]
    want = [server.post(C, body).json["choices"][0]["text"] for body in bodies]
    assert [reply["choices"][0]["text"] for reply in replies] == want


def test_a_crowd_is_turned_away_and_comes_back(server: Server) -> None:
    """One answer more than may be open is refused, with word when to come again; the others are not touched."""
    streams = [server.connect(C, LONG | {"n": 10, "stream": True}) for _ in range(MAX_ANSWERS // 10)]
    names = ("hspec_num_requests_running", "hspec_num_requests_waiting")
    wait_until(lambda: sum(map(server.metric, names)) == MAX_ANSWERS)
    refused = server.post(C, {"prompt": "x", "max_tokens": 1})
    assert (refused.status, refused.code) == (429, "R439")
    assert refused.headers["retry-after"] == "1"
    assert server.ask("GET", "/health").status == 200
    for stream in streams:
        stream.close()
    wait_until(lambda: server.post(C, {"prompt": "x", "max_tokens": 1}).status == 200)


@pytest.mark.parametrize("count", [40])
def test_a_storm_of_everything(count: int, server: Server, reference: LLM) -> None:
    """Case F11 over HTTP: clients that leave at any moment among clients that stay; those get their texts."""
    params = SamplingParams(seed=3, max_tokens=30, ignore_eos=True)
    want = reference.generate("hello", params).outputs[0].text
    body = {"prompt": "hello", "seed": 3, "max_tokens": 30, "ignore_eos": True}

    def leave(number: int) -> None:
        made = server.connect(C, body | {"stream": bool(number % 2)})
        made.settimeout(0.02 * (number % 7) + 0.001)
        with contextlib.suppress(TimeoutError):
            made.recv(1 + 400 * (number % 5))
        made.close()

    def stay(number: int) -> str:
        reply = server.post(C, body | {"stream": bool(number % 2)})
        if reply.status == 429:
            return want
        choices = [event["choices"][0] for event in reply.events] if number % 2 else reply.json["choices"]
        return "".join(choice["text"] for choice in choices)

    with ThreadPoolExecutor(10) as pool:
        calls: list[Callable[[int], object]] = [stay if number % 3 else leave for number in range(count)]
        results = list(pool.map(lambda pair: pair[0](pair[1]), zip(calls, range(count), strict=True)))
    assert {result for result in results if result is not None} == {want}
