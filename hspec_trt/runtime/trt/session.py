# SPDX-License-Identifier: Apache-2.0
"""A session on TensorRT: one copy in, one launch and one copy out a step, all on one stream that nobody waits for.

`submit` starts a step, `follow` starts the next one of the same rows from what the device has computed, before the host
has read anything, and `Pending.wait` reads. Launches are `hspec_trt.runtime.trt.launcher`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from hspec_trt import dtypes
from hspec_trt.config.build import FEEDBACK
from hspec_trt.contract import EXTENSIONS, MAX_TOP_LOGPROBS, NEXT_IDS, TensorSpec
from hspec_trt.errors import LoadError, RequestError
from hspec_trt.runtime.session import Int32, Limits, StepExtras, StepInputs, StepOutputs
from hspec_trt.runtime.step_checks import check_step
from hspec_trt.runtime.trt.buckets import StepShape, pad_step, shape_for
from hspec_trt.runtime.trt.cuda import Cuda, CudaError, PinnedMemory
from hspec_trt.runtime.trt.engine import EngineError, TrtEngine
from hspec_trt.runtime.trt.launcher import Launcher
from hspec_trt.runtime.trt.layout import Layout
from hspec_trt.runtime.trt.pools import PagePools

IN_FLIGHT: Final = 2
"""Steps that may be under way at a time: the one that is waited for, and the one that follows it."""
FIRST_BLOCK: Final = 1 << 16
"""Bytes for a step's inputs at first; more where a step needs more."""
_FED_BACK: Final = {"next_input_ids": "input_ids", "next_context_lens": "context_lens"}
_DEVICE_ONLY: Final = tuple(spec.name for spec in EXTENSIONS[FEEDBACK].outputs)


@dataclass
class _Staging:
    """Host memory of one step on its way: nobody touches it until its event has passed.

    Attributes:
        number: of the step that used it last.
    """

    inputs: PinnedMemory
    outputs: PinnedMemory
    event: Any
    number: int = 0


@dataclass(frozen=True)
class _Last:
    """The last step, as far as the next one may start from it.

    Attributes:
        inputs: as given, not padded.
        outputs: where its outputs lie on the device.
    """

    inputs: StepInputs
    outputs: Layout


class Pending:
    """A step under way."""

    def __init__(self, read: Callable[[], StepOutputs]) -> None:
        self._read = read

    def wait(self) -> StepOutputs:
        """Wait for the step and read what it emitted; to be called before two more steps are started.

        Raises:
            RequestError: R302, the step failed on the device.
        """
        return self._read()


class TrtSession:
    """One compiled plan on this machine's GPU. Used by one thread at a time.

    Args:
        engine: the plan.
        limits: as in the manifest; `page_bytes` is set from the plan.
        aliased: pages are updated in place, as plugin kernels do; otherwise every step copies them, from one set of
            buffers into another.
        use_graphs: record decode steps as CUDA graphs.
    """

    def __init__(
        self, engine: TrtEngine, cuda: Cuda, limits: Limits, *, aliased: bool, use_graphs: bool = True
    ) -> None:
        self._engine, self._cuda = engine, cuda
        self._pools = PagePools(cuda, engine.pools, aliased=aliased)
        self._limits = replace(limits, page_bytes=self._pools.page_bytes)
        self._no_extras = StepExtras.none(limits.vocab_size)
        most = StepShape(limits.max_rows, 0, 0, limits.max_rows * (limits.num_drafts + 1), limits.max_rows, 0, False)
        out_bytes = self._out_layout(most, most.K).nbytes
        self._outputs = cuda.malloc(out_bytes)
        self._inputs = cuda.malloc(FIRST_BLOCK)
        self._staging = [
            _Staging(cuda.malloc_host(FIRST_BLOCK), cuda.malloc_host(out_bytes), cuda.event()) for _ in range(IN_FLIGHT)
        ]
        self._launcher = Launcher(engine, cuda, self._pools, use_graphs=use_graphs)
        self._number = 0
        self._last: _Last | None = None

    @property
    def limits(self) -> Limits:
        """What the engine can take."""
        return self._limits

    @property
    def num_pages(self) -> int:
        """Pages P of the pool, the null page included; 0 before `allocate`."""
        return self._pools.num_pages

    @property
    def launcher(self) -> Launcher:
        """What it launches, with counts for reports."""
        return self._launcher

    def allocate(self, num_pages: int) -> None:
        """Make zeroed pools of `num_pages` pages, in place of those there were.

        Raises:
            LoadError: L035, the GPU has no room for them.
        """
        self._last = None
        self._cuda.synchronize()
        self._launcher.forget_addresses()
        try:
            self._pools.allocate(num_pages)
        except CudaError as error:
            device = self._cuda.device()
            free = f"the GPU {device.name} with {device.free / 2**30:.1f} GiB free"
            found = f"{free} does not hold {num_pages} pages: {error}"
            raise LoadError("L035", found, fix="Lower --kv-cache-memory") from error

    def step(self, inputs: StepInputs) -> StepOutputs:
        """Run one step.

        Raises:
            RequestError: R302 the backend failed, R310 the inputs break the contract.
        """
        return self.submit(inputs).wait()

    def submit(self, inputs: StepInputs) -> Pending:
        """Start a step.

        Raises:
            RequestError: R302 the backend failed, R310 the inputs break the contract.
        """
        check_step(inputs, self._limits, self.num_pages)
        if self._takes(NEXT_IDS) and inputs.next_ids is None:
            raise RequestError("R310", "next_ids is missing", needed="the token after each row's", where="step inputs")
        return self._start(inputs, None)

    def follow(self, page_table: Int32, most_context: Int32) -> Pending:
        """Start the decode step that follows the last one, of the same rows, each with all drafts it was given.

        The last step must have drafted for every row, in order. Tokens and context lengths come from its outputs on
        the device; sampling options stay as they were.

        Args:
            page_table: int32 ``[R, M]``, pages for the longest text that can come.
            most_context: int32 ``[R]``, the most that `context_lens` can be by then.

        Raises:
            RequestError: R302 the backend failed, R310 the last step cannot be followed or the pages do not do.
        """
        last, width = self._last, self._limits.num_drafts + 1
        if last is None or not can_follow(last.inputs, self._limits):
            raise RequestError("R310", "the last step cannot be followed", needed="drafts for every row, in order")
        rows = last.inputs.context_lens.size
        starts = np.arange(rows + 1, dtype=np.int32) * width
        packed = np.arange(rows * width, dtype=np.int32)
        inputs = replace(
            last.inputs,
            input_ids=np.zeros(rows * width, np.int32),
            cu_query_lens=starts,
            context_lens=most_context,
            query_slots=packed.reshape(rows, width),
            verify_rows=packed,
            cu_verify_lens=starts,
            page_table=page_table,
            next_ids=None if last.inputs.next_ids is None else np.zeros(rows, np.int32),
        )
        check_step(inputs, self._limits, self.num_pages)
        return self._start(inputs, last.outputs)

    def scrub(self, pages: Int32) -> None:
        """Zero these pages: int32 ``[n]``, page numbers; in the stream's order."""
        self._pools.scrub(pages.tolist())

    def _takes(self, spec: TensorSpec) -> bool:
        return spec in self._engine.inputs

    def _start(self, inputs: StepInputs, fed_from: Layout | None) -> Pending:
        shape = shape_for(inputs, self._limits)
        padded = replace(pad_step(inputs, shape), extras=inputs.extras or self._no_extras)
        arrays = padded.arrays()
        given = {spec.name: arrays[spec.name] for spec in self._engine.inputs}
        layout = Layout.of((name, array.shape, array.dtype) for name, array in given.items())
        outputs = self._out_layout(shape, arrays["top_rows"].size)
        self._last = None
        try:
            staging = self._next_staging(layout.nbytes)
            for name, array in given.items():
                layout.array(name, staging.inputs.view)[...] = array
            self._cuda.upload(self._inputs.address, staging.inputs.address, layout.nbytes)
            if fed_from is not None:
                self._feed_back(fed_from, layout, inputs)
            self._launcher.launch(shape, layout, self._inputs.address, outputs, self._outputs.address)
            self._cuda.download(staging.outputs.address, self._outputs.address, outputs.nbytes)
            self._cuda.record(staging.event)
        except (CudaError, EngineError) as error:
            raise _failed(error) from error
        self._last = _Last(inputs, outputs)
        rows, drafts, number = inputs.context_lens.size, inputs.draft_rows.size, staging.number
        return Pending(lambda: self._read(staging, number, outputs, rows, drafts))

    def _feed_back(self, source: Layout, target: Layout, inputs: StepInputs) -> None:
        counts = {"input_ids": inputs.input_ids.nbytes, "context_lens": inputs.context_lens.nbytes}
        for output, name in _FED_BACK.items():
            to = self._inputs.address + target.places[name].offset
            self._cuda.copy(to, self._outputs.address + source.places[output].offset, counts[name])

    def _next_staging(self, nbytes: int) -> _Staging:
        """The host memory that was used longest ago, with room for a step's inputs here and on the device."""
        self._number += 1
        staging = self._staging[self._number % IN_FLIGHT]
        self._cuda.wait(staging.event)
        staging.number = self._number
        if staging.inputs.view.nbytes < nbytes:
            staging.inputs.free()
            staging.inputs = self._cuda.malloc_host(2 * nbytes)
        if self._inputs.nbytes < nbytes:
            self._cuda.synchronize()
            self._launcher.forget_addresses()
            self._inputs.free()
            self._inputs = self._cuda.malloc(2 * nbytes)
        return staging

    def _out_layout(self, shape: StepShape, top_rows: int) -> Layout:
        drafts = self._limits.num_drafts
        sizes = {"R": shape.R, "D": shape.D, "G": drafts, "G+1": drafts + 1, "J": top_rows}
        sizes["C"] = min(MAX_TOP_LOGPROBS, self._limits.vocab_size)
        return Layout.of(
            (spec.name, tuple(sizes[dim] for dim in spec.dims), dtypes.BY_NAME[spec.dtype].numpy)
            for spec in self._engine.outputs
        )

    def _read(self, staging: _Staging, number: int, layout: Layout, rows: int, drafts: int) -> StepOutputs:
        if staging.number != number:
            raise ValueError(f"step {number} was not read before step {staging.number} took its memory")
        try:
            self._cuda.wait(staging.event)
        except CudaError as error:
            raise _failed(error) from error
        kept = {"R": rows, "D": drafts}
        read = {
            spec.name: layout.array(spec.name, staging.outputs.view)[: kept.get(spec.dims[0])].copy()
            for spec in self._engine.outputs
            if spec.name not in _DEVICE_ONLY
        }
        return StepOutputs(**read)  # type: ignore[arg-type]


def can_follow(inputs: StepInputs, limits: Limits) -> bool:
    """Whether the step after one with these inputs can start from its outputs on the device."""
    rows = inputs.context_lens.size
    drafted = np.array_equal(inputs.draft_rows, np.arange(rows))
    return FEEDBACK in limits.extensions and inputs.extras is None and drafted and limits.num_drafts > 0


def _failed(error: Exception) -> RequestError:
    return RequestError("R302", f"the step failed: {error}", where="tensorrt")
