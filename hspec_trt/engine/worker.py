# SPDX-License-Identifier: Apache-2.0
"""The child process of a build: parses the graph and compiles it with TensorRT, which may abort the process.

``python -m hspec_trt.engine.worker JOB_FILE`` writes events (`hspec_trt.engine.job`) to standard output, one a line,
and TensorRT's messages to the job's log file. Whoever started it decides what a failure means.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from hspec_trt.bundle.layers import Parsed, PluginLayer
from hspec_trt.contract import OPS
from hspec_trt.engine.backends import trt_backend
from hspec_trt.engine.job import (
    EVENT,
    JOB,
    BuildJob,
    Done,
    Event,
    Failed,
    PhaseAdvanced,
    PhaseStarted,
)
from hspec_trt.engine.profiles import Profile
from hspec_trt.errors import HspecError
from hspec_trt.native import CreatedPlugin, find_library, open_library, register

Emit = Callable[[Event], None]
LET_GO_SECONDS = 0.005
TRIM_SECONDS = 0.1


class BuildFailure(Exception):
    """The build cannot go on; carries the event to send."""

    def __init__(self, code: str, found: str, errors: tuple[str, ...] = ()) -> None:
        super().__init__(found)
        self.event = Failed(code, found, errors)


def make_logger(trt: Any, log: TextIO) -> Any:
    """A TensorRT logger that writes to a file and keeps the errors."""

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.INFO:
                log.write(f"[{severity.name}] {message}\n")
                log.flush()
            if severity <= trt.ILogger.ERROR:
                self.errors.append(message)

    return Logger()


def repeat(seconds: float, act: Callable[[], object]) -> None:
    """Do something beside the build, that often, until the process ends."""

    def again() -> None:
        while True:
            time.sleep(seconds)
            act()

    threading.Thread(target=again, daemon=True).start()


class MappedWeights:
    """The weights file, mapped: TensorRT reads it where it lies.

    What was read stays resident and counts as memory of this process, although the system may drop it at any time. It
    is dropped here every `LET_GO_SECONDS`, so that a build takes what it needs and not the weights once more.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        self.address = int(np.frombuffer(self._mapped, np.uint8).ctypes.data)
        repeat(LET_GO_SECONDS, lambda: self._mapped.madvise(mmap.MADV_DONTNEED))  # what is wanted again is read again


def give_back_freed_memory() -> None:
    """Return to the system, again and again, what TensorRT has freed.

    It frees as many small pieces as it has layers, in between others that stay, and glibc keeps such pages: a third of
    the peak of a build without plugins. Elsewhere than on glibc this does nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        repeat(TRIM_SECONDS, lambda: trim(0))


def make_monitor(trt: Any, emit: Emit) -> Any:
    """A progress monitor that sends every phase but those of single tensors. TensorRT calls it from several threads."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self._lock = threading.Lock()

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            if num_steps > 1:
                with self._lock:
                    emit(PhaseStarted(phase_name, num_steps))

        def step_complete(self, phase_name: str, step: int) -> bool:
            with self._lock:
                emit(PhaseAdvanced(phase_name))
            return True

        def phase_finish(self, phase_name: str) -> None:
            return

    return Monitor()


def make_writer(trt: Any, path: Path) -> Any:
    """A stream writer, so that the plan need not be in memory a second time."""

    class Writer(trt.IStreamWriter):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IStreamWriter.__init__(self)
            self.file = path.open("wb")
            self.error: OSError | None = None
            self.nbytes = 0

        def write(self, data: bytes) -> int:
            try:
                self.file.write(data)
            except OSError as error:
                self.error = error
                return 0
            self.nbytes += len(data)
            return len(data)

    return Writer()


class Compiler:
    """One build. Keeps alive what TensorRT only points to: logger, monitor, mapped weights."""

    def __init__(self, job: BuildJob, trt: Any, log: TextIO, emit: Emit) -> None:
        self.job, self.trt, self.emit = job, trt, emit
        self.logger = make_logger(trt, log)
        self.weights = MappedWeights(Path(job.weights))
        self.monitor = make_monitor(trt, emit)
        self.library = None if job.library is None else open_library(find_library(Path(job.library)))

    def run(self) -> None:
        """Parse, configure, compile, write."""
        give_back_freed_memory()
        if self.library is not None:
            register(self.library, self.trt.get_plugin_registry())
        builder = self.trt.Builder(self.logger)
        network = builder.create_network(1 << int(self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = self.trt.OnnxParser(network, self.logger)
        self._parse(parser)
        self.emit(summarize(self.trt, network, () if self.library is None else self.library.created()))
        config = self._config(builder)
        writer = make_writer(self.trt, Path(self.job.output))
        with writer.file:
            built = builder.build_serialized_network_to_stream(network, config, writer)
        if writer.error is not None:
            raise BuildFailure("B004", f"the plan cannot be written: {writer.error}")
        if not built or writer.nbytes == 0:
            raise BuildFailure("B041", "TensorRT built no engine", tuple(self.logger.errors))
        self._save_timing_cache(config)
        peak, anonymous = peak_memory()
        self.emit(Done(writer.nbytes, peak, anonymous, self.trt.__version__))

    def _parse(self, parser: Any) -> None:
        parser.load_model_proto(Path(self.job.graph).read_bytes())
        for weight in self.job.external:
            if not parser.load_initializer(weight.name, self.weights.address + weight.offset, weight.length):
                raise BuildFailure("B040", f"TensorRT does not take the weight {weight.name}", self._errors(parser))
        if not parser.parse_model_proto():
            raise BuildFailure("B040", "TensorRT cannot parse the graph", self._errors(parser))

    def _errors(self, parser: Any) -> tuple[str, ...]:
        told = [parser.get_error(index) for index in range(parser.num_errors)]
        return tuple(f"{error.node_operator()} {error.node_name()}: {error.desc()}" for error in told)

    def _config(self, builder: Any) -> Any:
        config = builder.create_builder_config()
        config.set_preview_feature(self.trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
        config.progress_monitor = self.monitor
        config.profiling_verbosity = self.trt.ProfilingVerbosity.DETAILED
        if (flag := self.trt.BuilderFlag.__members__.get("REQUIRE_USER_ALLOCATION")) is not None:
            config.set_flag(flag)  # else TensorRT-RTX may allocate memory in a step, which no CUDA graph can record
        for profile in self.job.profiles:
            config.add_optimization_profile(self._profile(builder, profile))
        if self.job.sm:
            config.num_compute_capabilities = len(self.job.sm)
            for index, sm in enumerate(self.job.sm):
                config.set_compute_capability(self.trt.ComputeCapability.__members__[f"SM{sm}"], index)
        if self.job.timing_cache is not None:
            path = Path(self.job.timing_cache)
            cache = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
            config.set_timing_cache(cache, ignore_mismatch=True)
        return config

    def _profile(self, builder: Any, profile: Profile) -> Any:
        made = builder.create_optimization_profile()
        for name, (least, opt, most) in profile.shapes.items():
            made.set_shape(name, least, opt, most)
        if not made:
            raise BuildFailure("B041", f"TensorRT refuses the profile {profile.name}", tuple(self.logger.errors))
        return made

    def _save_timing_cache(self, config: Any) -> None:
        if self.job.timing_cache is not None and (cache := config.get_timing_cache()) is not None:
            Path(self.job.timing_cache).write_bytes(cache.serialize())


def summarize(trt: Any, network: Any, created: tuple[CreatedPlugin, ...]) -> Parsed:
    """What the parser made of the graph.

    Args:
        created: the plugins that the library made while the graph was parsed.
    """
    made = {plugin.name: plugin for plugin in created}
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    plugin_layers = [layer for layer in layers if layer.type == trt.LayerType.PLUGIN_V3 and layer.name in made]
    return Parsed(
        dict(Counter(layer.type.name for layer in layers)),
        tuple(_plugin_layer(layer, made[layer.name]) for layer in plugin_layers),
    )


def _plugin_layer(layer: Any, plugin: CreatedPlugin) -> PluginLayer:
    spec = OPS[plugin.op]
    inputs = tuple(layer.get_input(index).name for index in range(layer.num_inputs))
    outputs = tuple(layer.get_output(index).name for index in range(layer.num_outputs))
    aliased = {
        outputs[spec.outputs.index(output)]: inputs[spec.inputs.index(source)]
        for output, source in plugin.aliased.items()
    }
    return PluginLayer(layer.name, plugin.op, dict(plugin.fields), inputs, outputs, aliased)


def peak_memory() -> tuple[int, int]:
    """Greatest resident bytes of this process, and its anonymous bytes now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kib = {key: int(status[key].split()[0]) for key in ("VmHWM", "RssAnon")}
    return kib["VmHWM"] * 1024, kib["RssAnon"] * 1024


def main() -> int:
    """Run the job of the file given on the command line."""
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # TensorRT itself may print

    def emit(event: Event) -> None:
        events.write(EVENT.dump_json(event).decode() + "\n")

    job = JOB.validate_json(Path(sys.argv[1]).read_bytes())
    try:
        with Path(job.log).open("a", encoding="utf-8") as log:
            Compiler(job, trt_backend(job.backend).load(), log, emit).run()
    except BuildFailure as failure:
        emit(failure.event)
    except HspecError as error:
        emit(Failed(error.code, error.message))
    except MemoryError:
        emit(Failed("B042", "the build ran out of memory"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
