# SPDX-License-Identifier: Apache-2.0
"""The manifest (``config.json``) of an engine folder: what was built, from what, and the identity of every file.

Owns the file format and its version. It does not open the other files (`hspec_trt.bundle.folder` does).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, Union

from pydantic import ConfigDict, Discriminator, Tag, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from hspec_trt import contract
from hspec_trt.config.build import Backend, EngineLimits, PluginMode
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.drafter_kinds import DRAFTER_KINDS
from hspec_trt.config.target import TargetConfig
from hspec_trt.errors import Faults, LoadError

MANIFEST_FILE: Final = "config.json"
FORMAT_VERSION: Final = 1
"""Version of the folder layout and of this file. Raise it when either changes."""
STEP_DTYPES: Final = ("float32", "float16", "bfloat16")
"""Types of weights, activations and pages."""
MAX_SHOWN: Final = 80


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


def _drafter_kind(value: object) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


if TYPE_CHECKING:
    AnyDrafter: TypeAlias = DrafterConfig
else:
    AnyDrafter = Annotated[
        Union[tuple(Annotated[config, Tag(kind)] for kind, config in DRAFTER_KINDS.items())],  # noqa: UP007
        Discriminator(
            _drafter_kind,
            custom_error_type="drafter_kind",
            custom_error_message=f"the kind is not one of {', '.join(DRAFTER_KINDS)}",
        ),
    ]
"""One of `DRAFTER_KINDS`, told apart by its ``kind``."""


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
    drafter: AnyDrafter | None
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
            manifest = TypeAdapter(Manifest).validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            raise LoadError(
                "L003", f"{key or 'the file'}: {first['msg']}", needed="an engine manifest", where=where, fix=REBUILD
            ) from None
        _check_values(manifest, where)
        return manifest


REBUILD: Final = "Build the engine again: hspec-trt build"


def shown(value: object) -> str:
    """A JSON value as messages show it: one short line of ASCII."""
    if isinstance(value, float | list | dict):
        return "a fraction" if isinstance(value, float) else "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def _check_versions(text: bytes, where: str) -> None:
    try:
        plain = TypeAdapter(dict[str, Any]).validate_json(text)
    except ValidationError:
        raise LoadError(
            "L003", "the file is not a JSON object", needed="an engine manifest", where=where, fix=REBUILD
        ) from None
    if any(not -(2**63) <= number < 2**63 for number in _whole_numbers(plain)):
        found = "the file has a whole number beyond 64 bits"
        raise LoadError("L003", found, needed="an engine manifest", where=where, fix=REBUILD)
    expected = {"format_version": FORMAT_VERSION, "contract_version": contract.CONTRACT_VERSION}
    for key, value in expected.items():
        found = shown(plain[key]) if key in plain else "missing"
        if found != str(value):
            raise LoadError("L004", f"{key} is {found}", needed=str(value), where=where, fix=REBUILD)


def _whole_numbers(value: object) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _whole_numbers(item)


def _check_values(manifest: Manifest, where: str) -> None:
    """Refuse numbers that a runtime cannot work with; all of them together."""
    limits, faults, most = manifest.limits, Faults(), 2**31 - 1
    drafter_position = manifest.drafter.max_position if manifest.drafter else 0
    for key, value, low, high in (
        ("target.vocab_size", manifest.target.vocab_size, 1, most),
        *(("target.eos_token_ids", token, 0, most) for token in manifest.target.eos_token_ids),
        ("drafter.max_position", drafter_position, 0, most),
        ("limits.max_batch_size", limits.max_batch_size, 1, most),
        ("limits.max_seq_len", limits.max_seq_len, 1, most),
        ("limits.max_num_tokens", limits.max_num_tokens, 1, most),
        ("limits.num_drafts", limits.num_drafts, 0, most),
    ):
        if not low <= value <= high:
            faults.add(LoadError("L003", f"{key} is {value}", needed=f"{low} to {high}", where=where, fix=REBUILD))
    if limits.page_size not in contract.PAGE_SIZES:
        sizes = ", ".join(map(str, contract.PAGE_SIZES))
        found = f"limits.page_size is {limits.page_size}"
        faults.add(LoadError("L003", found, needed=f"one of {sizes}", where=where, fix=REBUILD))
    if manifest.dtype not in STEP_DTYPES:
        found = f"dtype is {shown(manifest.dtype)}"
        faults.add(LoadError("L003", found, needed=f"one of {', '.join(STEP_DTYPES)}", where=where, fix=REBUILD))
    faults.raise_any()
