# SPDX-License-Identifier: Apache-2.0
"""What passes between the build and the child process that runs TensorRT: one job in, a line an event out.

Owns the two forms. Neither side imports the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from hspec_trt.bundle.layers import Parsed
from hspec_trt.config.build import Backend
from hspec_trt.engine.prepare import ExternalWeight
from hspec_trt.engine.profiles import Profile

JOB_FILE: Final = "job.json"
GRAPH_FILE: Final = "graph.onnx"


@validated(frozen=True)
class BuildJob:
    """One engine to build. Paths are absolute.

    Attributes:
        graph: serialised ONNX, without weights.
        weights: file that `external` points into.
        library: plugin library, or None to compile function bodies.
        sm: architectures; empty for this machine's GPU.
        output: the plan to write.
        log: file for TensorRT's messages.
        timing_cache: read where it exists, and written; None for none.
    """

    backend: Backend
    graph: str
    weights: str
    external: tuple[ExternalWeight, ...]
    library: str | None
    profiles: tuple[Profile, ...]
    sm: tuple[int, ...]
    output: str
    log: str
    timing_cache: str | None = None


@dataclass(frozen=True)
class PhaseStarted:
    """TensorRT began a phase of the build with so many steps."""

    name: str
    steps: int
    kind: Literal["phase"] = "phase"


@dataclass(frozen=True)
class PhaseAdvanced:
    """A step of the named phase is done."""

    name: str
    kind: Literal["step"] = "step"


@dataclass(frozen=True)
class Done:
    """The plan is written.

    Attributes:
        nbytes: size of the plan.
        peak_bytes: greatest resident memory of the child, mapped weights included.
        peak_anonymous_bytes: the part that is no mapped file.
    """

    nbytes: int
    peak_bytes: int
    peak_anonymous_bytes: int
    tensorrt_version: str
    kind: Literal["done"] = "done"


@dataclass(frozen=True)
class Failed:
    """A failure that the child could tell in words.

    Attributes:
        code: of the error to raise.
        errors: TensorRT's own error messages.
    """

    code: str
    found: str
    errors: tuple[str, ...] = ()
    kind: Literal["failed"] = "failed"


Event = Annotated[Parsed | PhaseStarted | PhaseAdvanced | Done | Failed, Field(discriminator="kind")]
EVENT: Final[TypeAdapter[Event]] = TypeAdapter(Event)
JOB: Final[TypeAdapter[BuildJob]] = TypeAdapter(BuildJob)
