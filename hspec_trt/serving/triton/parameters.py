# SPDX-License-Identifier: Apache-2.0
"""The ``parameters`` of a served model's ``config.pbtxt``: written by the export, read when the server loads the model.

Keys that TensorRT-LLM's models have keep their names. The only place of their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from hspec_trt.errors import Faults, LoadError
from hspec_trt.runtime.options import RuntimeOptions


@dataclass(frozen=True)
class ServedParameters:
    """How a model is served.

    Attributes:
        engine: the engine folder; a relative path starts at the model's own folder.
        exclude_input: leave the prompt out of the output where a request does not say.
        max_queue_size: prompts that may wait for a row; one more is refused.
        kv_cache_memory: bytes of the page pool of each instance; 0 takes `kv_cache_fraction` of free memory.
        kv_cache_fraction: share of free memory for the pages of all instances together.
        prefix_cache: keep pages of ended requests for those that start alike.
        engines: loaded engines that share this machine's memory and cores (instances of all exported models).
        num_threads: threads of a step on the onnxruntime backend; 0 shares all cores among `engines`.
        devices: GPUs, by number; instance i runs on the i-th of them, and over again. Empty leaves it to CUDA.
        cancel_period_ms, stats_period_ms: how often cancelled requests and metrics are looked at.
    """

    engine: str
    exclude_input: bool = True
    max_queue_size: int = 256
    kv_cache_memory: int = 0
    kv_cache_fraction: float = RuntimeOptions.kv_cache_fraction
    prefix_cache: bool = True
    engines: int = 1
    num_threads: int = 0
    devices: tuple[int, ...] = ()
    cancel_period_ms: float = 5.0
    stats_period_ms: float = 100.0

    def to_strings(self) -> dict[str, str]:
        """The parameters of the configuration file."""
        return {key: kind.write(vars(self)[name]) for name, (key, kind) in KEYS.items()}

    def engine_path(self, model_folder: Path) -> Path:
        """The engine folder, as seen from the model's folder."""
        return model_folder / self.engine


@dataclass(frozen=True)
class _Kind:
    """How a value is written and read; `words` says what is allowed."""

    words: str
    read: Callable[[str], object]
    write: Callable[[object], str] = str


def _at_least(low: float, number: Callable[[str], float]) -> Callable[[str], object]:
    def read(text: str) -> object:
        value = number(text)
        if not low <= value < float("inf"):
            raise ValueError(text)
        return value

    return read


def _share(text: str) -> object:
    value = float(text)
    if not 0.0 < value <= 1.0:
        raise ValueError(text)
    return value


def _yes_or_no(text: str) -> object:
    return {"true": True, "false": False}[text.lower()]


def _numbers(text: str) -> object:
    values = tuple(int(part) for part in text.split(",") if part.strip())
    if any(value < 0 for value in values):
        raise ValueError(text)
    return values


_PATH: Final = _Kind("a path", str)
_BOOL: Final = _Kind("true or false", _yes_or_no, lambda value: str(value).lower())
_COUNT: Final = _Kind("a whole number of at least 0", _at_least(0, int))
_POSITIVE: Final = _Kind("a whole number of at least 1", _at_least(1, int))
_SHARE: Final = _Kind("above 0, at most 1", _share)
_MILLISECONDS: Final = _Kind("milliseconds, at least 1", _at_least(1.0, float))
_DEVICES: Final = _Kind(
    "device numbers, such as 0,1",
    _numbers,
    lambda value: ",".join(map(str, value)) if isinstance(value, tuple) else "",
)

KEYS: Final[dict[str, tuple[str, _Kind]]] = {
    "engine": ("gpt_model_path", _PATH),
    "exclude_input": ("exclude_input_in_output", _BOOL),
    "max_queue_size": ("max_queue_size", _COUNT),
    "kv_cache_memory": ("kv_cache_memory", _COUNT),
    "kv_cache_fraction": ("kv_cache_free_gpu_mem_fraction", _SHARE),
    "prefix_cache": ("enable_kv_cache_reuse", _BOOL),
    "engines": ("engines_on_machine", _POSITIVE),
    "num_threads": ("num_threads", _COUNT),
    "devices": ("gpu_device_ids", _DEVICES),
    "cancel_period_ms": ("cancellation_check_period_ms", _MILLISECONDS),
    "stats_period_ms": ("stats_check_period_ms", _MILLISECONDS),
}
"""Field to its key in the file and its kind."""

_OF_TRITON: Final = frozenset({"EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS", "SHUTDOWN_GRACE_PERIOD"})
"""Parameters that the Python backend reads itself."""


def read_parameters(strings: Mapping[str, str], where: str) -> ServedParameters:
    """Read the parameters of a model's configuration.

    Args:
        where: the file, for messages.

    Raises:
        LoadError: L050 an unknown parameter, L051 a value that cannot be read; a `FaultGroup` of them.
    """
    known = {key: (name, kind) for name, (key, kind) in KEYS.items()}
    faults, values = Faults(), dict[str, object]()
    for key, text in strings.items():
        if key in _OF_TRITON:
            continue
        if key not in known:
            faults.add(LoadError("L050", f"parameter {key!r}", needed=f"one of {', '.join(known)}", where=where))
            continue
        name, kind = known[key]
        try:
            values[name] = kind.read(text)
        except (ValueError, KeyError):
            faults.add(LoadError("L051", f"parameter {key} is {text!r}", needed=kind.words, where=where))
    if not strings.get("gpt_model_path"):
        faults.add(LoadError("L051", "parameter gpt_model_path is not set", needed="an engine folder", where=where))
    faults.raise_any()
    return _make(values)


def _make(values: Mapping[str, object]) -> ServedParameters:
    assert set(values) <= {field.name for field in fields(ServedParameters)}
    return ServedParameters(**values)  # type: ignore[arg-type]
