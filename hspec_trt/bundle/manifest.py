# SPDX-License-Identifier: Apache-2.0
"""The manifest (``config.json``) of an engine folder: what was built, from what, and the identity of every file.

Owns the file format and its version. It does not open the other files (`hspec_trt.bundle.folder` does).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, ConfigDict, PlainSerializer, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from hspec_trt import contract
from hspec_trt.config.build import Backend, EngineLimits, PluginMode
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.drafter_kinds import DRAFTER_KINDS
from hspec_trt.config.target import TargetConfig
from hspec_trt.errors import LoadError

MANIFEST_FILE: Final = "config.json"
FORMAT_VERSION: Final = 1
"""Version of the folder layout and of this file. Raise it when either changes."""


@dataclass(frozen=True)
class FileRecord:
    """Identity of one file of the folder.

    Attributes:
        size: bytes.
        sha256: hash of the whole file.
        sample_sha256: hash of evenly spread blocks; equal to `sha256` for small files. Loading checks this one.
    """

    size: int
    sha256: str
    sample_sha256: str


@dataclass(frozen=True)
class Artifact:
    """One thing that can be run.

    Attributes:
        file: name in the folder.
        tensorrt_version: version that made a compiled plan; empty for the onnxruntime backend.
        sm: GPU architectures of a compiled plan, such as 89.
    """

    backend: Backend
    file: str
    tensorrt_version: str = ""
    sm: tuple[int, ...] = ()


def _drafter_from_plain(value: object) -> object:
    if not isinstance(value, dict):
        return value
    kind = value.get("kind")
    if kind not in DRAFTER_KINDS:
        raise ValueError(f"drafter kind {kind!r} is not one of {sorted(DRAFTER_KINDS)}")
    return TypeAdapter(DRAFTER_KINDS[kind]).validate_python(value)


def _drafter_to_plain(value: DrafterConfig | None) -> dict[str, Any] | None:
    return None if value is None else TypeAdapter(type(value)).dump_python(value, mode="json")


AnyDrafter = Annotated[
    DrafterConfig | None, BeforeValidator(_drafter_from_plain), PlainSerializer(_drafter_to_plain, when_used="always")
]


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class Manifest:
    """What an engine folder holds.

    Attributes:
        dtype: type of weights, activations and pages.
        plugins: whether compiled plans call plugin kernels or the ops' function bodies.
        ops: custom ops that the graph uses.
        files: every file of the folder but the manifest itself.
        notes: lines that the build printed and that explain the engine (layer-id table, shared heads, casts).
    """

    backend: Backend
    dtype: str
    target: TargetConfig
    drafter: AnyDrafter
    limits: EngineLimits
    ops: tuple[str, ...]
    artifacts: tuple[Artifact, ...]
    files: dict[str, FileRecord]
    notes: tuple[str, ...] = ()
    plugins: PluginMode = "none"
    format_version: int = FORMAT_VERSION
    contract_version: int = contract.CONTRACT_VERSION
    plugin_version: str = contract.PLUGIN_VERSION
    hspec_trt_version: str = ""

    @property
    def weight_files(self) -> tuple[str, ...]:
        """Names of the safetensors files."""
        return tuple(name for name in self.files if name.endswith(".safetensors"))

    def to_json(self) -> bytes:
        """The file's bytes: indented, in declared order, one newline at the end."""
        return TypeAdapter(Manifest).dump_json(self, indent=2) + b"\n"

    @staticmethod
    def from_json(text: bytes, where: str) -> Manifest:
        """Read a manifest.

        Args:
            text: the file's bytes.
            where: its path, for messages.

        Raises:
            LoadError: L003 not a manifest, L004 another format or contract version.
        """
        _check_versions(text, where)
        try:
            return TypeAdapter(Manifest).validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            raise LoadError(
                "L003", f"{key or 'the file'}: {first['msg']}", needed="an engine manifest", where=where, fix=REBUILD
            ) from None


REBUILD: Final = "Build the engine again: hspec-trt build"


def _check_versions(text: bytes, where: str) -> None:
    try:
        plain = TypeAdapter(dict[str, Any]).validate_json(text)
    except ValidationError:
        raise LoadError(
            "L003", "the file is not a JSON object", needed="an engine manifest", where=where, fix=REBUILD
        ) from None
    expected = {"format_version": FORMAT_VERSION, "contract_version": contract.CONTRACT_VERSION}
    for key, value in expected.items():
        if plain.get(key) != value:
            raise LoadError("L004", f"{key} is {plain.get(key)!r}", needed=str(value), where=where, fix=REBUILD)
