# SPDX-License-Identifier: Apache-2.0
"""A real ``hspec-trt serve`` process for tests, and plain ways to talk to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support.waiting import wait_until

START_SECONDS = 120.0


@dataclass(frozen=True)
class Reply:
    """A whole HTTP reply."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]

    @property
    def events(self) -> list[Any]:
        """Objects of a stream; the last event must be [DONE]."""
        data = [line[6:] for line in self.body.decode().split("\n\n") if line]
        assert data.pop() == "[DONE]"
        return [json.loads(one) for one in data]


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None, timeout: float = 60.0
    ) -> Reply:
        """One request on a connection of its own; bytes are sent as they are, anything else as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        typed = {"content-type": "application/json"} if data is not None else {}
        try:
            connection.request(method, path, data, typed | (headers or {}))
            reply = connection.getresponse()
            return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def post(self, path: str, body: object, **options: Any) -> Reply:
        return self.ask("POST", path, body, **options)

    def connect(self, path: str, body: object) -> socket.socket:
        """Send a request and leave the reading to the caller."""
        data = json.dumps(body).encode()
        made = socket.create_connection(("127.0.0.1", self.port), 60)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        made.sendall(head.encode() + data)
        return made

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric's series with these labels."""
        total = 0.0
        for line in self.ask("GET", "/metrics").body.decode().splitlines():
            series, _, value = line.rpartition(" ")
            if re.split(r"[{ ]", series)[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items()):
                total += float(value)
        return total

    def lines(self, message: str) -> list[dict[str, Any]]:
        """Lines of the JSON log with a message."""
        found = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in found if line["message"] == message]

    def wait_until_idle(self) -> None:
        wait_until(lambda: self.metric("hspec_num_requests_running") + self.metric("hspec_num_requests_waiting") == 0)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def num_sockets(self) -> int:
        return len(psutil.Process(self.process.pid).net_connections())


@contextmanager
def serving(engine: Path, log: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Server]:
    """A server on a free port, one thread, JSON logs."""
    command = [sys.executable, "-m", "hspec_trt.cli", "serve", str(engine), "--port", "0", "--threads", "1"]
    command += ["--kv-cache-memory", "16MiB", "--log-format", "json", *arguments]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, stdout=file, env={**os.environ, **(env or {})})
    try:
        server = Server(process, _port(process, log), log)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            timer = threading.Timer(30, process.kill)
            timer.start()
            process.wait()
            timer.cancel()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    found: list[re.Match[str]] = []

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        found.extend(re.finditer(r"http://[^ \"]*:(\d+)", log.read_text()))
        return bool(found)

    wait_until(ready, START_SECONDS)
    return int(found[0][1])
