# SPDX-License-Identifier: Apache-2.0
"""The one place that touches ``triton_python_backend_utils``, the module that exists only inside the server.

Most of its names appear only after a model file was imported, so they are looked up when they are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from hspec_trt.errors import HspecError
from hspec_trt.serving.triton.tensors import Array, Tensor

FINAL: Final = 1
"""The flag of a request's last response."""

MetricKind = Literal["GAUGE", "COUNTER", "HISTOGRAM"]


class TensorIn(Protocol):
    """An input tensor."""

    def name(self) -> str:
        """Its name."""

    def as_numpy(self) -> Array:
        """Its values; STRING elements are bytes."""


class Sender(Protocol):
    """Where the responses of one request go; usable from any thread."""

    def send(self, response: object = None, flags: int = 0) -> None:
        """Send one response; `FINAL` ends the request."""

    def is_cancelled(self) -> bool:
        """True once the client has given up."""


class RequestIn(Protocol):
    """A request as the server hands it over."""

    def inputs(self) -> Sequence[TensorIn]:
        """The tensors that were sent."""

    def request_id(self) -> str:
        """The client's name for it; may be empty."""

    def requested_output_names(self) -> Iterable[str]:
        """Outputs that the client wants; all of them where it does not say."""

    def get_response_sender(self) -> Sender:
        """Where its responses go."""


class Metric(Protocol):
    """One labelled series of a metric."""

    def set(self, value: float) -> None:
        """Set a gauge."""

    def increment(self, value: float) -> None:
        """Raise a counter."""

    def observe(self, value: float) -> None:
        """Count a value in a histogram."""


@dataclass(frozen=True)
class ModelArgs:
    """What the server tells a model about itself.

    Attributes:
        folder: the model's folder in the repository.
        instance: number of this instance, from 0, of `instances`.
        parameters: of the configuration file.
        outputs: names of all outputs.
    """

    name: str
    version: str
    folder: Path
    instance: int
    instances: int
    decoupled: bool
    batched: bool
    parameters: Mapping[str, str]
    outputs: frozenset[str]

    @staticmethod
    def read(args: Mapping[str, str]) -> ModelArgs:
        """Read the arguments of ``initialize``."""
        config = json.loads(args["model_config"])
        parameters = config.get("parameters", {})
        return ModelArgs(
            name=args["model_name"],
            version=args["model_version"],
            folder=Path(args["model_repository"]),
            instance=int(args["model_instance_name"].rpartition("_")[2]),
            instances=sum(int(group["count"]) for group in config["instance_group"]),
            decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
            batched=config["max_batch_size"] > 0,
            parameters={key: value["string_value"] for key, value in parameters.items()},
            outputs=frozenset(one["name"] for one in config["output"]),
        )


_ERROR_CODES: Final = {
    "R302": "INTERNAL",
    "R301": "INTERNAL",
    "R303": "UNAVAILABLE",
    "R304": "UNAVAILABLE",
    "R310": "INTERNAL",
    "R420": "UNAVAILABLE",
    "R425": "NOT_FOUND",
    "R427": "CANCELLED",
    "R428": "INTERNAL",
}
"""Our code to the attribute of TritonError; every other code is INVALID_ARG."""


_STOPPING: Final = "Server not ready"


class Backend:
    """Makes responses, errors and metrics.

    Args:
        utils: the module ``triton_python_backend_utils``.
    """

    def __init__(self, utils: Any) -> None:
        self._utils = utils

    def response(self, tensors: Iterable[tuple[Tensor, Array]]) -> object:
        """A response of these tensors."""
        made = [self._utils.Tensor(tensor.name, array) for tensor, array in tensors]
        return self._utils.InferenceResponse(output_tensors=made)

    def failure(self, error: HspecError) -> object:
        """A response that says what is wrong: status by our code, text as the command line shows it."""
        kinds = self._utils.TritonError
        status = getattr(kinds, _ERROR_CODES.get(error.code, "INVALID_ARG"))
        return self._utils.InferenceResponse(output_tensors=[], error=kinds(str(error), status))

    def load_error(self, error: HspecError) -> Exception:
        """What `initialize` raises for a model that cannot be loaded."""
        found: Exception = self._utils.TritonModelException(str(error))
        return found

    @property
    def send_errors(self) -> tuple[type[Exception], ...]:
        """What `Sender.send` raises where the request is gone."""
        return (self._utils.TritonModelException,)

    def log(self, text: str, *, error: bool = False) -> None:
        """Write a line to the server's log."""
        logger = self._utils.Logger
        (logger.log_error if error else logger.log_info)(text)

    def family(self, name: str, kind: MetricKind, description: str) -> Any:
        """A metric family, to be kept alive as long as its metrics."""
        family = self._utils.MetricFamily
        return family(name=name, description=description, kind=getattr(family, kind))

    def server_stops(self, model: str) -> bool:
        """True once the server is shutting down: it then answers no question about its models any more."""
        try:
            self._utils.is_model_ready(model)
        except self._utils.TritonModelException as error:
            return _STOPPING in str(error)
        return False

    def unload(self, model: str) -> str:
        """Ask the server to take a model out of service; returns why it will not, or an empty text."""
        try:
            self._utils.unload_model(model)
        except self._utils.TritonModelException as error:
            return str(error)
        return ""
