# SPDX-License-Identifier: Apache-2.0
"""The server's side of a Python model, in this process: requests, response senders, metrics, and the arguments that it
hands over, read from an exported repository."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2 as pb


class TritonModelException(Exception):
    """What the server's module raises."""


class Logger:
    lines: list[str] = []  # noqa: RUF012  (one log for all, as in the server)

    @staticmethod
    def log_info(text: str) -> None:
        Logger.lines.append(text)

    log_error = log_info


class TritonError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message: str, code: int) -> None:
        self.message, self.code = message, code


@dataclass
class Tensor:
    label: str
    array: np.ndarray

    def name(self) -> str:
        return self.label

    def as_numpy(self) -> np.ndarray:
        return self.array


@dataclass
class InferenceResponse:
    output_tensors: list[Tensor]
    error: TritonError | None = None


@dataclass
class Series:
    labels: dict[str, str]
    buckets: list[float] | None = None
    value: float = 0.0
    observed: list[float] = field(default_factory=list)

    def set(self, value: float) -> None:
        self.value = value

    def increment(self, value: float) -> None:
        assert value >= 0
        self.value += value

    def observe(self, value: float) -> None:
        self.observed.append(value)


@dataclass
class MetricFamily:
    name: str
    description: str
    kind: str
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"

    def Metric(self, labels: dict[str, str], buckets: list[float] | None = None) -> Series:  # noqa: N802
        series = Series(labels, buckets)
        FAMILIES.setdefault(self.name, []).append(series)
        return series


FAMILIES: dict[str, list[Series]] = {}


def metric(name: str, **labels: str) -> Series:
    """The newest series with these labels."""
    found = [one for one in FAMILIES[name] if labels.items() <= one.labels.items()]
    assert found, f"{name} has {[one.labels for one in FAMILIES[name]]}"
    return found[-1]


@dataclass
class Sender:
    """Collects the responses of one request."""

    responses: list[InferenceResponse] = field(default_factory=list)
    finals: int = 0
    cancelled: bool = False
    broken_after: int | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        assert not self.finals, "a response after the last one"
        if flags:
            self.finals += 1
        if self.broken_after is not None and len(self.responses) >= self.broken_after:
            if flags:
                self.done.set()
            raise TritonModelException("the client is gone")
        if response is not None:
            self.responses.append(response)
        if flags:
            self.done.set()

    def is_cancelled(self) -> bool:
        # The real server crashes when it is asked after the last response.
        assert not self.finals, "asked about a request that is over"
        return self.cancelled

    def wait(self, seconds: float = 60.0) -> list[dict[str, np.ndarray]]:
        """The responses' arrays by name, once the request has ended without an error."""
        assert self.done.wait(seconds), "no last response"
        assert self.error is None, self.error.message
        return [{one.label: one.array for one in response.output_tensors} for response in self.responses]

    @property
    def error(self) -> TritonError | None:
        return next((response.error for response in self.responses if response.error), None)

    def failure(self, seconds: float = 60.0) -> TritonError:
        """The error with which the request ended."""
        assert self.done.wait(seconds), "no last response"
        assert self.error is not None
        return self.error


@dataclass
class Request:
    arrays: Mapping[str, np.ndarray]
    identity: str = ""
    outputs: frozenset[str] = frozenset()
    sender: Sender = field(default_factory=Sender)

    def inputs(self) -> list[Tensor]:
        return [Tensor(name, array) for name, array in self.arrays.items()]

    def request_id(self) -> str:
        return self.identity

    def requested_output_names(self) -> frozenset[str]:
        return self.outputs

    def get_response_sender(self) -> Sender:
        return self.sender


def arguments(model: Path, instance: int = 0) -> dict[str, str]:
    """What ``initialize`` is given for a model's folder."""
    config = text_format.Parse((model / "config.pbtxt").read_text(), pb.ModelConfig())
    plain = json_format.MessageToDict(
        config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return {
        "model_config": json.dumps(plain),
        "model_name": model.name,
        "model_version": "1",
        "model_instance_name": f"{model.name}_0_{instance}",
        "model_repository": str(model),
    }


class Server:
    """One instance of an exported model, made from its own model.py."""

    def __init__(self, folder: Path, instance: int = 0) -> None:
        self.folder = folder
        self.unloaded: list[str] = []
        self.explicit = True
        self.stopping = False
        module = ModuleType("triton_python_backend_utils")
        for one in (TritonModelException, Logger, TritonError, Tensor, InferenceResponse, MetricFamily):
            setattr(module, one.__name__, one)
        module.unload_model = self._unload  # type: ignore[attr-defined]
        module.is_model_ready = self._is_ready  # type: ignore[attr-defined]
        namespace: dict[str, Any] = {}
        old = sys.modules.get(module.__name__)
        sys.modules[module.__name__] = module
        try:
            exec((folder / "1" / "model.py").read_text(), namespace)
        finally:
            if old is None:
                del sys.modules[module.__name__]
            else:
                sys.modules[module.__name__] = old
        self.model = namespace["TritonPythonModel"]()
        self.model.initialize(arguments(folder, instance))
        config = text_format.Parse((folder / "config.pbtxt").read_text(), pb.ModelConfig())
        self.outputs = frozenset(one.name for one in config.output)
        self.batched = config.max_batch_size > 0

    def ask(self, identity: str = "", outputs: frozenset[str] | None = None, **arrays: object) -> Request:
        """Send one request; values become arrays with the batch dimension where the model has one."""
        request = Request(
            {name: self.array(name, value) for name, value in arrays.items()}, identity, outputs or self.outputs
        )
        self.model.execute([request])
        return request

    def array(self, name: str, value: object) -> np.ndarray:
        if isinstance(value, np.ndarray):
            return value
        items = value if isinstance(value, list) else [value]
        if isinstance(items[0], str):
            array = np.array([item.encode() for item in items], np.object_)
        elif isinstance(items[0], bool):
            array = np.array(items)
        elif "seed" in name:
            array = np.array(items, np.uint64)
        else:
            array = np.array(items, np.float32 if isinstance(items[0], float) else np.int32)
        return array[None] if self.batched else array

    def _is_ready(self, name: str) -> bool:
        if self.stopping:
            raise TritonModelException(f"Failed to check model readiness: {name}, message: Server not ready")
        return True

    def _unload(self, name: str) -> None:
        if not self.explicit:
            raise TritonModelException("explicit model load / unload is not allowed")
        self.unloaded.append(name)


@contextmanager
def serving(folder: Path, instance: int = 0) -> Iterator[Server]:
    """A model that is loaded, and unloaded at the end."""
    server = Server(folder, instance)
    try:
        yield server
    finally:
        server.model.finalize()


def engine_of(server: Server) -> Any:
    """The engine behind a model that generates."""
    return server.model.model._engine
