# SPDX-License-Identifier: Apache-2.0
"""A real Triton Inference Server for tests: started by our script, asked over HTTP and gRPC."""

from __future__ import annotations

import http.client
import json
import queue
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

SCRIPT = Path(__file__).parents[2] / "build_scripts" / "triton_server.py"
CALL_SECONDS = 120.0
START_SECONDS = 600.0
"""The first start on a machine installs the server."""
STOP_SECONDS = 60.0
Arrays = Mapping[str, np.ndarray]


class Stream:
    """One gRPC stream: send requests, read responses in the order in which they come."""

    def __init__(self, client: grpcclient.InferenceServerClient, timeout: float | None) -> None:
        self._client = client
        self._news: queue.Queue[tuple[Any, InferenceServerException | None]] = queue.Queue()
        client.start_stream(lambda result, error: self._news.put((result, error)), stream_timeout=timeout)

    def send(self, model: str, arrays: Arrays, request_id: str = "", outputs: tuple[str, ...] = ()) -> None:
        self._client.async_stream_infer(
            model,
            inputs_of(arrays),
            request_id=request_id,
            outputs=[grpcclient.InferRequestedOutput(name) for name in outputs] or None,
            enable_empty_final_response=True,
        )

    def next(self, seconds: float = 60.0) -> tuple[dict[str, np.ndarray], bool]:
        """Arrays of the next response, and whether it is its request's last; raises what the server says."""
        result, error = self._news.get(timeout=seconds)
        if error is not None:
            raise error
        response = result.get_response()
        arrays = {one.name: result.as_numpy(one.name) for one in response.outputs}
        return arrays, response.parameters["triton_final_response"].bool_param

    def rest(self) -> list[dict[str, np.ndarray]]:
        """The responses up to the last of the one request under way; an empty last one is left out."""
        found = []
        while True:
            arrays, last = self.next()
            found += [arrays] if arrays else []
            if last:
                return found

    def cancel(self) -> None:
        """End the stream and whatever is open on it.

        After a cancel, tritonclient leaves gRPC's thread waiting for the stream's next request for ever, with a call of
        a channel that is closed; the last entry of the queue ends it.
        """
        stream = self._client._stream
        self._client.stop_stream(cancel_requests=True)
        if stream is not None:
            stream._request_queue.put(None)


class TritonServer:
    """A running server."""

    def __init__(self, repository: Path, record: Mapping[str, Any], log: Path) -> None:
        self.repository, self.log = repository, log
        self.pid = int(record["pid"])
        self.http, self.grpc, self.metrics_port = (int(record[key]) for key in ("http", "grpc", "metrics"))

    def client(self) -> grpcclient.InferenceServerClient:
        return grpcclient.InferenceServerClient(f"127.0.0.1:{self.grpc}")

    @contextmanager
    def stream(self, timeout: float | None = None) -> Iterator[Stream]:
        """A stream that ends with the block, whether its requests did or not."""
        client = self.client()
        stream = Stream(client, timeout)
        try:
            yield stream
        finally:
            stream.cancel()
            client.close()

    def infer(self, model: str, arrays: Arrays, timeout: float = CALL_SECONDS) -> dict[str, np.ndarray]:
        """One request, one response."""
        client = self.client()
        try:
            result = client.infer(model, inputs_of(arrays), client_timeout=timeout)
            return {one.name: result.as_numpy(one.name) for one in result.get_response().outputs}
        finally:
            client.close()

    def call(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=CALL_SECONDS)
        try:
            connection.request(method, path, body if isinstance(body, str) else json.dumps(body) if body else None)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def generate(self, model: str, **body: object) -> dict[str, Any]:
        status, text = self.call("POST", f"/v2/models/{model}/generate", body)
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    def generate_stream(self, model: str, **body: object) -> list[dict[str, Any]]:
        status, text = self.call("POST", f"/v2/models/{model}/generate_stream", body)
        assert status == 200, text
        events = [line for line in text.split("\n\n") if line]
        assert all(event.startswith("data: ") for event in events)
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def ready(self, model: str) -> bool:
        return self.call("GET", f"/v2/models/{model}/ready")[0] == 200

    def load(self, model: str) -> None:
        status, text = self.call("POST", f"/v2/repository/models/{model}/load")
        assert status == 200, text

    def unload(self, model: str) -> None:
        status, text = self.call("POST", f"/v2/repository/models/{model}/unload")
        assert status == 200, text

    def metric(self, name: str, **labels: str) -> float:
        """The value of the one series with these labels."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=CALL_SECONDS)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        found = [
            float(match[2])
            for line in lines
            if (match := re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)) and wanted <= set(match[1].split(","))
        ]
        assert len(found) == 1, f"{name} {labels}: {found}"
        return found[0]


def joined(responses: list[dict[str, np.ndarray]]) -> str:
    """The text of a stream's responses."""
    return b"".join(one["text_output"].item() for one in responses).decode()


def inputs_of(arrays: Arrays) -> list[grpcclient.InferInput]:
    inputs = []
    for name, array in arrays.items():
        one = grpcclient.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        one.set_data_from_numpy(array)
        inputs.append(one)
    return inputs


def array_of(name: str, value: object, *, batched: bool = True) -> np.ndarray:
    """A plain value as the tensor that clients send."""
    items = value if isinstance(value, list) else [value]
    if isinstance(items[0], str):
        array = np.array([item.encode() for item in items], np.object_)
    elif isinstance(items[0], bool):
        array = np.array(items)
    elif "seed" in name:
        array = np.array(items, np.uint64)
    else:
        array = np.array(items, np.float32 if isinstance(items[0], float) else np.int32)
    return array[None] if batched else array


def arrays_of(*, batched: bool = True, **values: object) -> dict[str, np.ndarray]:
    return {name: array_of(name, value, batched=batched) for name, value in values.items()}


@contextmanager
def triton_server(repository: Path, log: Path, *options: str) -> Iterator[TritonServer]:
    """Start the server on free ports, and stop it. A machine where it cannot be installed fails here."""
    command = [sys.executable, str(SCRIPT), "start", str(repository), "--free-ports", "--json", "--log", str(log)]
    done = subprocess.run(
        [*command, "--", *options], check=False, stdout=subprocess.PIPE, text=True, timeout=START_SECONDS
    )
    assert done.returncode == 0, "the server did not start; its output is above"
    server = TritonServer(repository, json.loads(done.stdout), log)
    # It stops the server as soon as its input ends: when the block does, or when this process dies.
    guard = subprocess.Popen(
        ["sh", "-c", 'read -r _; exec "$@"', "guard", *_stop_command(server)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield server
    finally:
        guard.communicate(timeout=STOP_SECONDS)
        assert guard.returncode == 0, "the server could not be stopped"


def stop(server: TritonServer) -> float:
    """Stop it, unless it was; returns the seconds that it took."""
    began = time.monotonic()
    subprocess.run(_stop_command(server), check=True, capture_output=True, timeout=STOP_SECONDS)
    return time.monotonic() - began


def _stop_command(server: TritonServer) -> list[str]:
    return [sys.executable, str(SCRIPT), "stop", str(server.pid)]
