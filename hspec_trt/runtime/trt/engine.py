# SPDX-License-Identifier: Apache-2.0
"""A compiled plan in TensorRT's hands: its tensors, checked against the contract, and contexts that run it.

Owns every call of TensorRT's runtime API. It knows no buffers but the scratch memory that all contexts share: they run
one after the other, on one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hspec_trt import dtypes
from hspec_trt.contract import DRAFT_CONFIDENCE, EXTENSIONS, NEXT_IDS, STEP_INPUTS, STEP_OUTPUTS, TensorSpec
from hspec_trt.errors import LoadError
from hspec_trt.runtime.session import Limits
from hspec_trt.runtime.trt.cuda import Cuda

DECODE_PROFILE: Final = 0
MIXED_PROFILE: Final = 1
"""Numbers of the profiles that `hspec_trt.engine.profiles` builds."""
_POOLS: Final = ("kv_pages.", "draft_kv_pages.")
_ITEM_SIZES: Final = {dtype.tensorrt: dtype.itemsize for dtype in dtypes.ALL if dtype.tensorrt}


class EngineError(Exception):
    """A call that TensorRT refused, with what it logged."""


@dataclass(frozen=True)
class Pool:
    """One page pool: its name as input and output, and bytes and shape of one page."""

    name: str
    out_name: str
    page_shape: tuple[int, ...]
    page_bytes: int


class TrtEngine:
    """A deserialised plan.

    Args:
        trt: ``tensorrt`` or ``tensorrt_rtx``.
        plan: file of the plan; mapped, not read into memory.
        limits: as in the manifest.
        compiles_at_run_time: as `hspec_trt.native.TrtPackage`.

    Attributes:
        inputs, outputs: the contract's tensors that it has, without pages.
        pools: its page pools.

    Raises:
        EngineError: TensorRT makes no configuration for contexts.
        LoadError: L031 its tensors are not the contract's, L039 TensorRT refuses it.
    """

    def __init__(self, trt: Any, cuda: Cuda, plan: Path, limits: Limits, *, compiles_at_run_time: bool) -> None:
        self._trt, self._cuda = trt, cuda
        self._compiles = compiles_at_run_time
        self._log = _logger(trt)
        self._runtime = trt.Runtime(self._log)
        self._engine = self._runtime.deserialize_cuda_engine(np.memmap(plan, np.uint8, "r"))
        if self._engine is None:
            told = "; ".join(self._log.errors[-2:]) or "it cannot be read"
            raise LoadError("L039", f"TensorRT refuses the plan: {told}", where=str(plan), fix=_REBUILD)
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        is_input = {name: self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT for name in names}
        self.pools = tuple(self._pool(name) for name in names if is_input[name] and name.startswith(_POOLS))
        self.inputs, self.outputs = _contract_tensors(is_input, self.pools, limits, plan)
        if self._engine.num_optimization_profiles != 2:
            found = f"{self._engine.num_optimization_profiles} optimization profiles"
            raise LoadError("L031", found, needed="2: decode and mixed", where=str(plan), fix=_REBUILD)
        self._scratch = cuda.malloc(self._engine.device_memory_size_v2)
        self._made_from = self._context_options()

    def _pool(self, name: str) -> Pool:
        shape = tuple(self._engine.get_tensor_shape(name))[1:]
        item = _ITEM_SIZES[self._engine.get_tensor_dtype(name).name]
        return Pool(name, name.replace("kv_pages.", "kv_pages_out."), shape, int(np.prod(shape)) * item)

    def _context_options(self) -> dict[int, Any]:
        """What a context is made from, by profile."""
        user_managed = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if not self._compiles:
            return dict.fromkeys((DECODE_PROFILE, MIXED_PROFILE), user_managed)
        # Left to itself TensorRT changes from a general kernel to a special one in mid-text, once that is compiled, and
        # the two round differently. So the few decode shapes get their own before their first step, which waits for the
        # compiler; prompts come in any shape, keep the general kernels and never wait.
        kernels = self._trt.DynamicShapesKernelSpecializationStrategy
        configs = {DECODE_PROFILE: self._config(kernels.EAGER), MIXED_PROFILE: self._config(kernels.NONE)}
        self._compiled = configs[DECODE_PROFILE].create_runtime_cache()
        for config in configs.values():
            config.set_execution_context_allocation_strategy(user_managed)
            config.set_runtime_cache(self._compiled)
        return configs

    def _config(self, kernels: Any) -> Any:
        config = self._engine.create_runtime_config()
        if config is None:
            raise EngineError(self._told("no runtime configuration"))
        config.dynamic_shapes_kernel_specialization_strategy = kernels
        return config

    def context(self, profile: int) -> TrtContext:
        """A context for one profile, on the shared scratch memory.

        Raises:
            EngineError: TensorRT makes none.
        """
        context = self._engine.create_execution_context(self._made_from[profile])
        if context is None:
            raise EngineError(self._told("no execution context"))
        context.set_device_memory(self._scratch.address, self._scratch.nbytes)
        if not context.set_optimization_profile_async(profile, int(self._cuda.stream)):
            raise EngineError(self._told(f"profile {profile} is refused"))
        self._cuda.synchronize()
        return TrtContext(context, self._told, self._cuda, compiles_at_run_time=self._compiles)

    def _told(self, what: str) -> str:
        errors, self._log.errors = self._log.errors, []
        return ": ".join([what, *errors[-2:]])


class TrtContext:
    """Runs the plan for one profile."""

    def __init__(self, context: Any, told: Callable[[str], str], cuda: Cuda, *, compiles_at_run_time: bool) -> None:
        self._context, self._told, self._cuda = context, told, cuda
        self._compiles = compiles_at_run_time

    @property
    def can_be_captured(self) -> bool:
        """Whether a run may be recorded as a CUDA graph now."""
        return not self._compiles or bool(self._context.is_stream_capturable(int(self._cuda.stream)))

    def bind(
        self,
        inputs: Mapping[str, tuple[int, tuple[int, ...]]],
        outputs: Mapping[str, tuple[int, tuple[int, ...]]],
    ) -> None:
        """Give every tensor its address and shape.

        Args:
            inputs: name to address and shape.
            outputs: name to address and the shape that it is read with.

        Raises:
            EngineError: a shape is outside the profile, or an output has another shape than it is read with.
        """
        for name, (address, shape) in inputs.items():
            if not self._context.set_input_shape(name, shape):
                raise EngineError(self._told(f"input {name} with shape {shape} is refused"))
            if not self._context.set_tensor_address(name, address):
                raise EngineError(self._told(f"input {name} cannot be bound"))
        for name, (address, shape) in outputs.items():
            found = tuple(self._context.get_tensor_shape(name))
            if len(found) != len(shape) or any(a not in (-1, b) for a, b in zip(found, shape, strict=True)):
                raise EngineError(f"output {name} has shape {found}, needs {shape}")
            if not self._context.set_tensor_address(name, address):
                raise EngineError(self._told(f"output {name} cannot be bound"))

    def run(self) -> None:
        """Run it on what is bound, in the stream's order.

        Raises:
            EngineError: TensorRT cannot start it.
        """
        if not self._context.execute_async_v3(int(self._cuda.stream)):
            raise EngineError(self._told("the step cannot be started"))


_REBUILD: Final = "Build the engine again: hspec-trt build"


def _logger(trt: Any) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR:
                self.errors.append(message)

    return Logger()


def _contract_tensors(
    is_input: Mapping[str, bool], pools: tuple[Pool, ...], limits: Limits, plan: Path
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """The contract's inputs and outputs that a plan has, after checking that it has no others and lacks none."""
    extensions = [EXTENSIONS[name] for name in limits.extensions]
    inputs = [*STEP_INPUTS, *(spec for extension in extensions for spec in extension.inputs)]
    outputs = [*STEP_OUTPUTS, *(spec for extension in extensions for spec in extension.outputs)]
    given = {name for name, is_in in is_input.items() if is_in}
    pages, pages_out = [pool.name for pool in pools], [pool.out_name for pool in pools]
    faults = [
        *_faults("inputs", given, [*(spec.name for spec in inputs), *pages], NEXT_IDS),
        *_faults("outputs", set(is_input) - given, [*(spec.name for spec in outputs), *pages_out], DRAFT_CONFIDENCE),
    ]
    if faults or not pools:
        found = "; ".join(faults) or "no pages"
        raise LoadError("L031", found, needed="the step contract's names", where=str(plan), fix=_REBUILD)
    return (
        tuple(spec for spec in (*inputs, NEXT_IDS) if spec.name in is_input),
        tuple(spec for spec in (*outputs, DRAFT_CONFIDENCE) if spec.name in is_input),
    )


def _faults(kind: str, found: set[str], needed: list[str], optional: TensorSpec) -> Iterator[str]:
    if missing := set(needed) - found:
        yield f"missing {kind}: {sorted(missing)}"
    if unknown := found - set(needed) - {optional.name}:
        yield f"unknown {kind}: {sorted(unknown)}"
