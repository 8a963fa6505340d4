# SPDX-License-Identifier: Apache-2.0
"""`plan_engine` and `compile_engine`: from the step graph and its weights to a TensorRT plan, in a child process.

Owns the order: cheap checks and estimates (plan), then job, child, result (compile). Only the child
(`hspec_trt.engine.worker`) touches TensorRT, since that may abort the process.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import onnx
import onnx_ir as ir

from hspec_trt.bundle.layers import Parsed
from hspec_trt.config.build import BuildConfig, EngineLimits
from hspec_trt.engine.backends import TrtBackend, trt_backend
from hspec_trt.engine.child import run_child
from hspec_trt.engine.estimate import BuildEstimate, check_room, estimate_build
from hspec_trt.engine.job import GRAPH_FILE, JOB, JOB_FILE, BuildJob, Event, PhaseAdvanced, PhaseStarted
from hspec_trt.engine.prepare import (
    ExternalWeight,
    check_dtype,
    check_kernels,
    external_weights,
    for_tensorrt,
    op_nodes,
)
from hspec_trt.engine.profiles import profiles
from hspec_trt.errors import BuildError, Faults
from hspec_trt.native import PluginLibrary, find_library, open_library
from hspec_trt.progress import SILENT, Progress

PARTIAL = ".partial"


@dataclass(frozen=True)
class EngineReport:
    """What a compilation made.

    Attributes:
        nbytes: size of the plan.
        seconds: of the child process.
        peak_bytes: its greatest resident memory, mapped weights included.
        sm: architectures; empty for this machine's GPU.
        parsed: layers as TensorRT parsed them; None where the child did not tell.
        log: TensorRT's messages.
    """

    path: Path
    nbytes: int
    seconds: float
    peak_bytes: int
    tensorrt_version: str
    sm: tuple[int, ...]
    parsed: Parsed | None
    log: Path


@dataclass(frozen=True)
class EnginePlan:
    """A compilation whose cheap checks have passed.

    Attributes:
        model: the step graph.
        external: its weights in the weights file.
        sm: architectures; empty for this machine's GPU.
        library: plugin library; None compiles the ops' function bodies.
    """

    backend: TrtBackend
    model: onnx.ModelProto
    external: tuple[ExternalWeight, ...]
    limits: EngineLimits
    sm: tuple[int, ...]
    library: PluginLibrary | None
    estimate: BuildEstimate


def check_backend(
    config: BuildConfig, plugin_library: Path | None = None
) -> tuple[tuple[int, ...], PluginLibrary | None]:
    """All that can be known without a graph: architectures and plugin library of a build.

    Raises:
        BuildError: B043 no such package, B044 architectures, B047 type; all faults together.
        LoadError: L002, no fitting plugin library.
    """
    faults = Faults()
    backend = trt_backend(config.backend)
    sm: tuple[int, ...] = ()
    library = None
    with faults.collect():
        backend.check_installed()
    with faults.collect():
        sm = backend.settle_sm(config.sm)
    with faults.collect():
        check_dtype(config.dtype, config.plugins)
    if config.plugins == "kernels":
        with faults.collect():
            library = open_library(find_library(plugin_library))
    faults.raise_any()
    return sm, library


def plan_engine(
    graph: ir.Model | bytes,
    limits: EngineLimits,
    config: BuildConfig,
    folder: Path,
    *,
    block_size: int = 0,
    plugin_library: Path | None = None,
    allow_missing_kernels: bool = False,
) -> EnginePlan:
    """Check all that is cheap, before weights are written or TensorRT is started.

    Args:
        graph: the step graph, as built or serialised; not changed.
        config: backend, dtype, sm and plugins are read; limits are those of `limits`.
        folder: where the plan will lie.
        block_size: of the drafter, 0 without one; its attention kernels must hold that many slots.
        plugin_library: instead of the one that `hspec_trt.native` finds.
        allow_missing_kernels: build although the plugin library lacks kernels; such an engine cannot run.

    Raises:
        BuildError: B010, B011 too little room; B046 a missing kernel; those of `check_backend`.
        LoadError: L002, no fitting plugin library.
    """
    sm, library = check_backend(config, plugin_library)
    model = ir.to_proto(graph) if isinstance(graph, ir.Model) else onnx.ModelProto.FromString(graph)
    if library is not None and not allow_missing_kernels:
        check_kernels(library, op_nodes(model, config.dtype, limits.num_drafts + 1, block_size), sm)
    external = external_weights(model)
    estimate = estimate_build(sum(weight.length for weight in external), plugins=library is not None)
    check_room(estimate, folder)
    return EnginePlan(trt_backend(config.backend), model, external, limits, sm, library, estimate)


def compile_engine(
    plan: EnginePlan,
    weights: Path,
    output: Path,
    *,
    log: Path,
    progress: Progress = SILENT,
    timing_cache: Path | None = None,
) -> EngineReport:
    """Compile one plan.

    Args:
        weights: the file that the graph's external data lies in.
        output: the plan; it appears whole or not at all.
        log: file that TensorRT's messages are appended to; kept on failure.
        timing_cache: file that lets a later build reuse TensorRT's measurements.

    Raises:
        BuildError: B040 to B042, B045, B048, as documented where they are raised.
    """
    _check_weights_file(weights, max((weight.offset + weight.length for weight in plan.external), default=0))
    seconds, memory = plan.estimate.seconds, plan.estimate.memory_bytes / 2**30
    progress.note(f"{plan.backend.name} {plan.backend.version}: about {seconds:.0f} s and {memory:.1f} GiB of memory")
    partial = output.with_name(output.name + PARTIAL)
    watcher = _Watcher(progress)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="hspec_trt.") as name:
        job_file, libraries = _write_job(Path(name), plan, weights, partial, log, timing_cache)
        try:
            done = run_child(job_file, libraries, log, watcher)
            _finish(partial, output, done.nbytes)
        finally:
            partial.unlink(missing_ok=True)
    return EngineReport(
        path=output,
        nbytes=done.nbytes,
        seconds=time.perf_counter() - start,
        peak_bytes=done.peak_bytes,
        tensorrt_version=done.tensorrt_version,
        sm=plan.sm,
        parsed=watcher.parsed,
        log=log,
    )


def _write_job(
    folder: Path, plan: EnginePlan, weights: Path, output: Path, log: Path, timing_cache: Path | None
) -> tuple[Path, Path]:
    """Put what the child needs into a folder; returns the job file and the folder for its ``LD_LIBRARY_PATH``."""
    libraries = folder / "lib"
    libraries.mkdir()
    plan.backend.link_shim(libraries)
    graph = folder / GRAPH_FILE
    graph.write_bytes(for_tensorrt(plan.model, "none" if plan.library is None else "kernels"))
    job = BuildJob(
        backend=plan.backend.name,
        graph=str(graph),
        weights=str(weights.absolute()),
        external=plan.external,
        library=None if plan.library is None else str(plan.library.path),
        profiles=profiles(_inputs(plan.model), plan.limits),
        sm=plan.sm,
        output=str(output.absolute()),
        log=str(log.absolute()),
        timing_cache=None if timing_cache is None else str(timing_cache.absolute()),
    )
    (folder / JOB_FILE).write_bytes(JOB.dump_json(job))
    return folder / JOB_FILE, libraries


def _check_weights_file(weights: Path, needed: int) -> None:
    size = weights.stat().st_size if weights.is_file() else 0
    if size < needed:
        raise BuildError(
            "B048", f"{weights} has {size} bytes", needed=f"{needed}, as the graph says", where=str(weights)
        )


def _inputs(model: onnx.ModelProto) -> list[ir.Value]:
    return [ir.serde.deserialize_value_info_proto(value, None) for value in model.graph.input]


def _finish(partial: Path, output: Path, nbytes: int) -> None:
    size = partial.stat().st_size if partial.is_file() else 0
    if size != nbytes:
        raise BuildError("B041", f"the plan has {size} bytes on disk", needed=f"{nbytes}", where=str(output))
    partial.replace(output)


SHOWN_PHASES: Final = {
    "Optimizing graph": "optimize graph",
    "Timing graph nodes": "time kernels",
    "Determining refit engines": "compile kernels",
}
"""TensorRT's phases that take long, and what we call them; each comes once a profile."""


class _Watcher:
    """Hands the child's events to a `Progress`, and keeps what was parsed."""

    def __init__(self, progress: Progress) -> None:
        self.parsed: Parsed | None = None
        self._progress = progress
        self._phase = ""
        progress.stage("parse graph")

    def __call__(self, event: Event) -> None:
        if isinstance(event, Parsed):
            self.parsed = event
            self._progress.stage("compile engine")
        elif isinstance(event, PhaseStarted) and event.name in SHOWN_PHASES:
            self._phase = event.name
            self._progress.stage(SHOWN_PHASES[event.name], event.steps)
        elif isinstance(event, PhaseAdvanced) and event.name == self._phase:
            self._progress.advance(1)


def write_layers(report: EngineReport, path: Path) -> None:
    """Write what was parsed as JSON beside the plan, for ``hspec-trt inspect``."""
    parsed = {} if report.parsed is None else asdict(report.parsed)
    path.write_text(json.dumps(parsed, indent=1) + "\n", encoding="utf-8")
