# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the names are those of what is doubled
"""TensorRT's runtime on a `HostGpu`: the part that a session uses. A plan names a graph, which ONNX Runtime executes.

So every binding, shape, alias and pointer is exercised with real numbers. What TensorRT leaves undefined is `Misuse`:
an output without an address, pages in place where the plan does not alias (or not where it does), a launch from a graph
whose context was bound anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime as ort

from hspec_trt.engine.profiles import Profile
from tests.support.gpu_double import HostGpu, Misuse

SCRATCH_BYTES = 4096
USER_ALLOCATION = "REQUIRE_USER_ALLOCATION"
FLAGS = (USER_ALLOCATION,)
"""Flags of the builder that a build sets (tests/unit/engine/test_compile.py)."""
_TYPES = {
    "tensor(float)": ("FLOAT", np.float32),
    "tensor(float16)": ("HALF", np.float16),
    "tensor(int32)": ("INT32", np.int32),
    "tensor(int64)": ("INT64", np.int64),
    "tensor(bool)": ("BOOL", np.bool_),
}


def write_plan(
    path: Path,
    graph: Path,
    profiles: Sequence[Profile],
    *,
    aliased: bool,
    flags: Sequence[str] = FLAGS,
) -> Path:
    """A plan that the double takes.

    Args:
        flags: names of the builder's flags that it was built with.
    """
    shapes = [profile.shapes for profile in profiles]
    path.write_text(json.dumps({"graph": str(graph), "profiles": shapes, "aliased": aliased, "flags": list(flags)}))
    return path


@cache
def ort_session(graph: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class Severity(IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING = Severity


class TensorIOMode(IntEnum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class Strategy(IntEnum):
    STATIC = 0
    USER_MANAGED = 2


class Specialization(IntEnum):
    LAZY = 0
    EAGER = 1
    NONE = 2


class RuntimeConfig:
    """How contexts are made; the defaults are TensorRT's."""

    def __init__(self, allocation: Strategy = Strategy.STATIC) -> None:
        self.allocation = allocation
        self.dynamic_shapes_kernel_specialization_strategy = Specialization.LAZY
        self.cache: object = None

    def set_execution_context_allocation_strategy(self, strategy: Strategy) -> None:
        self.allocation = strategy

    def create_runtime_cache(self) -> object:
        return object()

    def set_runtime_cache(self, cache: object) -> bool:
        self.cache = cache
        return True


class FakeTensorRt:
    """Stands for the module ``tensorrt_rtx``, or for ``tensorrt``.

    Attributes:
        compiles_at_run_time: which of the two.
        config_fails: whether no runtime configuration is made.
        enqueue_fails: whether a launch is refused.
        capture_fails: launches to refuse while they are captured, from now on.
    """

    ILogger = ILogger
    TensorIOMode = TensorIOMode
    ExecutionContextAllocationStrategy = Strategy
    DynamicShapesKernelSpecializationStrategy = Specialization

    def __init__(self, gpu: HostGpu, *, compiles_at_run_time: bool = True) -> None:
        self.gpu, self.compiles_at_run_time = gpu, compiles_at_run_time
        self.enqueue_fails = False
        self.config_fails = False
        self.capture_fails = 0
        self.contexts: list[Context] = []
        self.registry = SimpleNamespace(all_creators=[], load_library=lambda path: None)

    def Runtime(self, logger: ILogger) -> Runtime:
        return Runtime(self, logger)

    def get_plugin_registry(self) -> SimpleNamespace:
        return self.registry


class Runtime:
    def __init__(self, trt: FakeTensorRt, logger: ILogger) -> None:
        self._trt, self._logger = trt, logger

    def deserialize_cuda_engine(self, serialized_engine: memoryview) -> Engine | None:
        try:
            plan = json.loads(bytes(memoryview(serialized_engine)))
        except ValueError:
            self._logger.log(Severity.ERROR, "the magic number does not match")
            return None
        return Engine(self._trt, self._logger, plan)


class Engine:
    def __init__(self, trt: FakeTensorRt, logger: ILogger, plan: Mapping) -> None:
        self.trt, self.logger, self.plan = trt, logger, plan
        self.session = ort_session(plan["graph"])
        self.given = {node.name: node for node in self.session.get_inputs()}
        self.made = {node.name: node for node in self.session.get_outputs()}
        self._names = [*self.given, *self.made]
        self.num_io_tensors = len(self._names)
        self.num_optimization_profiles = len(plan["profiles"])
        self.device_memory_size_v2 = SCRATCH_BYTES

    def get_tensor_name(self, index: int) -> str:
        return self._names[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self.given else TensorIOMode.OUTPUT

    def node(self, name: str) -> ort.NodeArg:
        return (self.given | self.made)[name]

    def get_tensor_dtype(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=_TYPES[self.node(name).type][0])

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(dim if isinstance(dim, int) else -1 for dim in self.node(name).shape)

    def create_runtime_config(self) -> RuntimeConfig | None:
        if not self.trt.compiles_at_run_time:
            raise Misuse("this TensorRT has nothing to configure")
        return None if self.trt.config_fails else RuntimeConfig()

    def create_execution_context(self, options: Strategy | RuntimeConfig) -> Context:
        config = options if isinstance(options, RuntimeConfig) else RuntimeConfig(options)
        if config.allocation is not Strategy.USER_MANAGED:
            raise Misuse("contexts share scratch memory")
        lazy = config.dynamic_shapes_kernel_specialization_strategy is Specialization.LAZY
        if lazy and self.trt.compiles_at_run_time:
            raise Misuse("kernels change in mid-text, and behind recorded launches")
        context = Context(self, config)
        self.trt.contexts.append(context)
        return context


class Context:
    def __init__(self, engine: Engine, config: RuntimeConfig) -> None:
        self.engine, self.config = engine, config
        self.profile: int | None = None
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.scratch = (0, 0)
        self.ran_with: dict[str, tuple[int, ...]] = {}

    def set_device_memory(self, memory: int, size: int) -> None:
        self.scratch = (memory, size)

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self.profile = profile_index
        return profile_index < self.engine.num_optimization_profiles

    def is_stream_capturable(self, stream: int) -> bool:
        return USER_ALLOCATION in self.engine.plan["flags"] or not self.engine.trt.compiles_at_run_time

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        if self.profile is None:
            raise Misuse("no profile is set")
        bounds = self.engine.plan["profiles"][self.profile].get(name)
        if bounds is None:
            fits = shape == self.engine.get_tensor_shape(name)
        else:
            low, _, high = bounds
            fits = len(low) == len(shape) and all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))
        if fits:
            self.shapes[name] = shape
        else:
            self.engine.logger.log(Severity.ERROR, f"{name}: {shape} is outside {bounds}")
        return fits

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        """Dims by the names of the inputs' dims, where TensorRT can know them."""
        sizes = {}
        for given, node in self.engine.given.items():
            for dim, size in zip(node.shape, self.shapes.get(given, ()), strict=False):
                if isinstance(dim, str):
                    sizes[dim] = size
        return tuple(dim if isinstance(dim, int) else sizes.get(dim, -1) for dim in self.engine.node(name).shape)

    def set_tensor_address(self, name: str, memory: int) -> bool:
        if memory % 256:
            raise Misuse(f"{name} at {memory:#x} is not aligned")
        self.addresses[name] = memory
        return name in self.engine.given or name in self.engine.made

    def execute_async_v3(self, stream_handle: int) -> bool:
        engine, stream = self.engine, self.engine.trt.gpu.streams[stream_handle]
        if engine.trt.enqueue_fails:
            engine.logger.log(Severity.ERROR, "enqueue failed")
            return False
        unbound = {*engine.given, *engine.made} - set(self.addresses)
        unshaped = set(engine.given) - set(self.shapes)
        if unbound or unshaped:
            raise Misuse(f"without address: {sorted(unbound)}, without shape: {sorted(unshaped)}")
        if self.scratch[1] < engine.device_memory_size_v2:
            raise Misuse("too little scratch memory")
        shapes, addresses = dict(self.shapes), dict(self.addresses)
        captured = stream.captured is not None
        if captured and engine.trt.capture_fails:
            engine.trt.capture_fails -= 1
            engine.logger.log(Severity.ERROR, "this launch cannot be captured")
            return False
        if captured and not self.is_stream_capturable(stream_handle):
            raise Misuse("a step that may allocate memory is captured")
        if captured and self.ran_with != shapes:
            engine.logger.log(Severity.ERROR, "capture before a first run with these shapes")
            return False
        self.ran_with = shapes

        def run() -> None:
            if captured and (self.shapes, self.addresses) != (shapes, addresses):
                raise Misuse("a recorded launch outlived its context's bindings")
            self._run(shapes, addresses)

        stream.add(run)
        return True

    def _array(self, name: str, address: int, shape: tuple[int, ...]) -> np.ndarray:
        dtype = np.dtype(_TYPES[self.engine.node(name).type][1])
        nbytes = int(np.prod(shape)) * dtype.itemsize
        return self.engine.trt.gpu.bytes_at(address, nbytes, on_device=True).view(dtype).reshape(shape)

    def _run(self, shapes: Mapping[str, tuple[int, ...]], addresses: Mapping[str, int]) -> None:
        gpu, session = self.engine.trt.gpu, self.engine.session
        gpu.bytes_at(*self.scratch, on_device=True)[:] = 0xEE
        binding = session.io_binding()
        for name, shape in shapes.items():
            binding.bind_ortvalue_input(
                name, ort.OrtValue.ortvalue_from_numpy(self._array(name, addresses[name], shape))
            )
        small = []
        for name in self.engine.made:
            source = name.replace("kv_pages_out.", "kv_pages.")
            if source == name:
                binding.bind_output(name)
                small.append(name)
                continue
            if (addresses[name] == addresses[source]) != self.engine.plan["aliased"]:
                raise Misuse(f"{name} lies at {addresses[name]:#x}, its input at {addresses[source]:#x}")
            pages = self._array(name, addresses[name], shapes[source])
            binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(pages))
        session.run_with_iobinding(binding)
        results = dict(zip(self.engine.made, binding.get_outputs(), strict=True))
        for name in small:
            values = results[name].numpy()
            self._array(name, addresses[name], values.shape)[...] = values
