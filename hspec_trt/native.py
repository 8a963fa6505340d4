# SPDX-License-Identifier: Apache-2.0
"""Which TensorRT packages there are, and the plugin library: found, loaded and checked against the contract.

Owns the packages' names, where the library lies and what it must say of itself. It opens the library with ctypes first,
so that a wrong one is refused in words before TensorRT loads anything; TensorRT's registry is handed in by the caller.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from hspec_trt import contract
from hspec_trt.config.build import Backend
from hspec_trt.contract import KV_DTYPE, OPS, OpSpec
from hspec_trt.errors import Faults, LoadError

LIBRARY_NAME: Final = "libhspec_trt_plugins.so"
PACKAGED_LIBRARY: Final = Path(__file__).parent / "lib" / LIBRARY_NAME
LIBRARY_VARIABLE: Final = "HSPEC_TRT_PLUGIN_LIBRARY"
"""Environment variable with the path of the library to use instead of the packaged one."""

_BUILD: Final = "Build it: python build_scripts/build_plugins.py; or set " + LIBRARY_VARIABLE
_DTYPE_CODES: Final = {"float32": 0, "float16": 1, "bfloat16": 2, "int32": 3, "int64": 4, "bool": 5}
_MAX_RANK: Final = 8


@dataclass(frozen=True)
class TrtPackage:
    """A Python package of TensorRT.

    Attributes:
        module: what is imported.
        distribution: its name on PyPI.
        extra: our extra that installs it, and CUDA's Python bindings with it.
        compiles_at_run_time: it compiles kernels for this machine's GPU when it runs: a context must be told for which
            shapes, and knows whether it can be captured into a CUDA graph.
    """

    module: str
    distribution: str
    extra: str
    compiles_at_run_time: bool

    @property
    def version(self) -> str | None:
        """Installed version, or None."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None


TRT_PACKAGES: Final[dict[Backend, TrtPackage]] = {
    "tensorrt-rtx": TrtPackage("tensorrt_rtx", "tensorrt-rtx", "rtx", compiles_at_run_time=True),
    "tensorrt": TrtPackage("tensorrt", "tensorrt", "tensorrt", compiles_at_run_time=False),
}


class _Tensor(ctypes.Structure):
    """hspec_trt_tensor of plugins.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.c_int64 * _MAX_RANK),
    )


@dataclass(frozen=True)
class OpNode:
    """One node of a graph, as far as its kernels depend on it.

    Attributes:
        attributes: all of the op's attributes.
        kv_dtype: the engine's type.
        shapes: of the inputs, in order; -1 for sizes that change from step to step.
    """

    op: str
    attributes: Mapping[str, int | float]
    kv_dtype: str
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class CreatedPlugin:
    """A plugin that TensorRT's parser had the library make.

    Attributes:
        name: of the layer.
        fields: the attributes that arrived.
        aliased: output to the input whose memory it shares, by the op's own names.
    """

    name: str
    op: str
    fields: Mapping[str, int | float]
    aliased: Mapping[str, str]


class PluginLibrary:
    """An opened plugin library that agrees with this package's contract.

    Attributes:
        path: the file.
        tensorrt_version: of the headers that it was built with.
        sm: architectures that it holds machine code for.
        ptx: architectures that it holds PTX for, a fallback for newer GPUs.
    """

    def __init__(self, path: Path, library: ctypes.CDLL, description: Mapping[str, object]) -> None:
        kernels = description["kernels"]
        if not isinstance(kernels, dict):
            raise TypeError(f"kernels: {kernels!r}")
        self.path = path
        self.tensorrt_version = str(description["tensorrt"])
        self.num_variants = int(kernels["variants"])
        self.sm: tuple[int, ...] = tuple(kernels["sm"])
        self.ptx: tuple[int, ...] = tuple(kernels["ptx"])
        self._library = library

    def created(self) -> tuple[CreatedPlugin, ...]:
        """The plugins made for networks in this process so far, in order."""
        entries = json.loads(_text(self._library, "hspec_trt_created_plugins"))
        return tuple(CreatedPlugin(entry["name"], **entry["plugin"]) for entry in entries)

    def missing_kernel(self, node: OpNode, sm: int) -> str:
        """What of a node has no kernel on an architecture, in words; empty where nothing is missing."""
        spec = OPS[node.op]
        tensors = (_Tensor * len(spec.inputs))()
        for tensor, name, shape in zip(tensors, spec.inputs, node.shapes, strict=True):
            dtype = spec.operands[name].dtype
            tensor.dtype = _DTYPE_CODES[node.kv_dtype if dtype == KV_DTYPE else dtype]
            tensor.rank = len(shape)
            tensor.dims[: len(shape)] = shape
        words = _attribute_words(spec, node.attributes)
        if self._library.hspec_trt_check_kernels(node.op.encode(), words, tensors, sm) == 0:
            return ""
        return _text(self._library, "hspec_trt_last_error")


def _text(library: ctypes.CDLL, function: str) -> str:
    """Call a function of the library that returns a string."""
    call = ctypes.CFUNCTYPE(ctypes.c_char_p)((function, library))
    return str((call() or b"").decode())


def _attribute_words(spec: OpSpec, attributes: Mapping[str, int | float]) -> ctypes.Array[ctypes.c_int32]:
    formats = {"int": "<i", "float": "<f"}
    packed = b"".join(struct.pack(formats[kind], attributes[name]) for name, kind in spec.attributes.items())
    return (ctypes.c_int32 * max(1, len(spec.attributes))).from_buffer_copy(packed.ljust(4, b"\0"))


def find_library(explicit: Path | None = None) -> Path:
    """The plugin library's path: `explicit`, else the environment's, else the packaged one.

    Raises:
        LoadError: L002, there is none.
    """
    chosen = explicit or (Path(os.environ[LIBRARY_VARIABLE]) if os.environ.get(LIBRARY_VARIABLE) else PACKAGED_LIBRARY)
    if chosen.is_file():
        return chosen.resolve()
    told = "given" if explicit else f"${LIBRARY_VARIABLE}" if chosen != PACKAGED_LIBRARY else "the package's own"
    raise LoadError("L002", f"no plugin library at {chosen} ({told})", needed=LIBRARY_NAME, fix=_BUILD)


def open_library(path: Path) -> PluginLibrary:
    """Open the library without TensorRT and compare it with this package's contract.

    Raises:
        LoadError: L002, not a plugin library of ours or of another contract; all differences together.
    """
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
        description = _object(_text(library, "hspec_trt_describe"))
    except (OSError, AttributeError, ValueError) as error:
        raise _unusable(str(error), path) from error
    _check_description(description, path)
    try:
        return PluginLibrary(path, library, description)
    except (KeyError, TypeError, ValueError) as error:
        raise _unusable("its description does not tell its kernels", path) from error


def _unusable(what: str, path: Path) -> LoadError:
    found = f"the plugin library cannot be used: {what}"
    return LoadError("L002", found, needed=LIBRARY_NAME, where=str(path), fix=_BUILD)


def _object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError("its description is not a JSON object")
    return value


def _check_description(description: Mapping[str, object], path: Path) -> None:
    expected: dict[str, object] = {
        "contract_version": contract.CONTRACT_VERSION,
        "plugin_version": contract.PLUGIN_VERSION,
        "ops": {op.name: list(op.attributes) for op in OPS.values()},
        "ops_digest": contract.ops_digest(),
    }
    faults = Faults()
    for key, value in expected.items():
        text, needed = json.dumps(description[key]) if key in description else "missing", json.dumps(value)
        if text != needed:
            found = f"the plugin library's {key} is {text}"
            faults.add(LoadError("L002", found, needed=needed, where=str(path), fix=_BUILD))
    faults.raise_any()


class Creator(Protocol):
    """What is asked of a plugin creator."""

    @property
    def name(self) -> str:
        """Op name."""

    @property
    def plugin_version(self) -> str:
        """Plugin version."""

    @property
    def plugin_namespace(self) -> str:
        """Namespace."""


class Registry(Protocol):
    """What is asked of TensorRT's plugin registry."""

    @property
    def all_creators(self) -> Sequence[Creator]:
        """Every creator that is registered."""

    def load_library(self, plugin_path: str) -> object:
        """Load a library and register its creators; None where it cannot."""


def register(library: PluginLibrary, registry: Registry) -> None:
    """Load the library into TensorRT's registry and check that every op of the contract is there.

    Raises:
        LoadError: L002, TensorRT refuses the library or a creator is missing.
    """
    wanted = {(name, contract.PLUGIN_VERSION, contract.OP_DOMAIN) for name in OPS}
    if wanted <= _registered(registry):
        return
    handle = registry.load_library(str(library.path))
    missing = wanted - _registered(registry)
    if handle is None or missing:
        names = ", ".join(sorted(name for name, _, _ in missing)) or "the library"
        raise LoadError(
            "L002",
            f"TensorRT does not take {names} from the plugin library",
            needed=f"plugins of namespace {contract.OP_DOMAIN!r}, version {contract.PLUGIN_VERSION!r}",
            where=str(library.path),
            fix=f"It was built with headers of TensorRT {library.tensorrt_version}: build it for the installed one",
        )


def _registered(registry: Registry) -> set[tuple[str, str, str]]:
    return {(creator.name, creator.plugin_version, creator.plugin_namespace) for creator in registry.all_creators}
