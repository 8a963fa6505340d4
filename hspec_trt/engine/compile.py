# SPDX-License-Identifier: Apache-2.0
"""`compile_engine`: from the step graph and its weights to a TensorRT plan, in a child process.

Owns the order: cheap checks, estimates, job, child, result. TensorRT itself is only touched by the child
(`hspec_trt.engine.worker`), since it may abort the process.
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

from hspec_trt.config.build import BuildConfig, EngineLimits
from hspec_trt.engine.backends import TrtBackend, trt_backend
from hspec_trt.engine.child import run_child
from hspec_trt.engine.estimate import check_room, estimate_build
from hspec_trt.engine.job import GRAPH_FILE, JOB, JOB_FILE, BuildJob, Event, Parsed, PhaseAdvanced, PhaseStarted
from hspec_trt.engine.prepare import check_dtype, check_kernels, external_weights, for_tensorrt, op_nodes
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


def compile_engine(
    graph: ir.Model | bytes,
    weights: Path,
    limits: EngineLimits,
    config: BuildConfig,
    output: Path,
    *,
    log: Path,
    progress: Progress = SILENT,
    timing_cache: Path | None = None,
    plugin_library: Path | None = None,
    allow_missing_kernels: bool = False,
) -> EngineReport:
    """Compile one plan.

    Args:
        graph: the step graph, as built or serialised; not changed.
        weights: the file that its external data lies in.
        config: backend, dtype, sm and plugins are read; limits are those of `limits`.
        output: the plan; it appears whole or not at all.
        log: file that TensorRT's messages are appended to; kept on failure.
        timing_cache: file that lets a later build reuse TensorRT's measurements.
        plugin_library: instead of the one that `hspec_trt.native` finds.
        allow_missing_kernels: build although the plugin library lacks kernels; such an engine cannot run.

    Raises:
        BuildError: B010, B011 too little room; B040 to B047 as documented where they are raised.
        LoadError: L002, no fitting plugin library.
    """
    backend = trt_backend(config.backend)
    model = ir.to_proto(graph) if isinstance(graph, ir.Model) else onnx.ModelProto.FromString(graph)
    sm, library = _check(backend, model, config, plugin_library, allow_missing_kernels=allow_missing_kernels)
    external = external_weights(model)
    _check_weights_file(weights, max((weight.offset + weight.length for weight in external), default=0))
    estimate = estimate_build(sum(weight.length for weight in external), plugins=library is not None)
    check_room(estimate, output.absolute().parent)
    progress.note(
        f"{backend.name} {backend.version}: about {estimate.seconds:.0f} s, {_gib(estimate.memory_bytes)} memory"
    )

    partial = output.with_name(output.name + PARTIAL)
    with tempfile.TemporaryDirectory(prefix="hspec_trt.") as name:
        folder = Path(name)
        (folder / "lib").mkdir()
        backend.link_shim(folder / "lib")
        (folder / GRAPH_FILE).write_bytes(for_tensorrt(model, config.plugins))
        job = BuildJob(
            backend=backend.name,
            graph=str(folder / GRAPH_FILE),
            weights=str(weights.absolute()),
            external=external,
            library=None if library is None else str(library.path),
            profiles=profiles(_inputs(model), limits),
            sm=sm,
            output=str(partial.absolute()),
            log=str(log.absolute()),
            timing_cache=None if timing_cache is None else str(timing_cache.absolute()),
        )
        (folder / JOB_FILE).write_bytes(JOB.dump_json(job))
        watcher = _Watcher(progress)
        start = time.perf_counter()
        try:
            done = run_child(folder / JOB_FILE, folder / "lib", log, watcher)
            _finish(partial, output, done.nbytes)
        finally:
            partial.unlink(missing_ok=True)
    seconds = time.perf_counter() - start
    return EngineReport(output, done.nbytes, seconds, done.peak_bytes, done.tensorrt_version, sm, watcher.parsed, log)


def _check(
    backend: TrtBackend,
    model: onnx.ModelProto,
    config: BuildConfig,
    plugin_library: Path | None,
    *,
    allow_missing_kernels: bool,
) -> tuple[tuple[int, ...], PluginLibrary | None]:
    """All that can be known before the child starts, faults together."""
    faults = Faults()
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
    if library is not None and not allow_missing_kernels:
        check_kernels(library, op_nodes(model, config.dtype), sm)
    return sm, library


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


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB"


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
