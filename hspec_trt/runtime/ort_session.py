# SPDX-License-Identifier: Apache-2.0
"""A session on ONNX Runtime (CPU): pages are updated in place, weights stay in the mapped file where that is asked.

It binds by the contract's names. What the folder's manifest says, and whether its files are whole, was checked before.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from hspec_trt.config.build import FEEDBACK
from hspec_trt.contract import DRAFT_CONFIDENCE, EXTENSIONS, NEXT_IDS, STEP_INPUTS, STEP_OUTPUTS
from hspec_trt.errors import LoadError, RequestError
from hspec_trt.runtime.padding import Padding
from hspec_trt.runtime.session import Limits, StepExtras, StepInputs, StepOutputs
from hspec_trt.runtime.step_checks import check_step

_ORT_ERRORS: Final = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NoSuchFile,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
)
_DEVICE_OUTPUTS: Final = {spec.name for spec in EXTENSIONS[FEEDBACK].outputs}
_PAGE_INPUTS: Final = ("kv_pages.", "draft_kv_pages.")
_NUMPY_TYPES: Final[dict[str, np.dtype[np.generic]]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
}


@dataclass(frozen=True)
class _Pool:
    """One page pool: its name as input and output, and the shape of a page."""

    name: str
    out_name: str
    page_shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def page_bytes(self) -> int:
        """Bytes of one page."""
        return int(np.prod(self.page_shape)) * self.dtype.itemsize


class OrtSession:
    """One engine folder's graph on ONNX Runtime.

    Args:
        graph: path of graph.onnx; its external data lies beside it.
        limits: as in the manifest; `page_bytes` is set from the graph.
        num_threads: threads of a step; None is every core that this process may use.
        prepack: repack weights, in memory of this process instead of the mapped file: faster steps of several tokens.
        padding: least sizes of a step.

    Raises:
        LoadError: L030 ONNX Runtime refuses the graph, L031 the graph's inputs or outputs are not the contract's.
    """

    def __init__(
        self,
        graph: Path,
        limits: Limits,
        *,
        num_threads: int | None = None,
        prepack: bool = True,
        padding: Padding | None = None,
    ) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = num_threads or len(os.sched_getaffinity(0))
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what goes wrong is raised, and need not be printed as well
        if not prepack:
            options.add_session_config_entry("session.disable_prepacking", "1")
        try:
            self._session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        except _ORT_ERRORS as error:
            fix = "Build the engine again: hspec-trt build"
            raise LoadError("L030", f"ONNX Runtime refuses the graph: {error}", where=str(graph), fix=fix) from error
        self._padding = padding or Padding()
        extensions = [EXTENSIONS[name] for name in limits.extensions]
        inputs = [spec.name for specs in (STEP_INPUTS, *(e.inputs for e in extensions)) for spec in specs]
        outputs = [spec.name for specs in (STEP_OUTPUTS, *(e.outputs for e in extensions)) for spec in specs]
        self._pools = _pools(self._session, graph, inputs, outputs)
        given = {node.name for node in self._session.get_outputs()}
        read = [name for name in (*outputs, DRAFT_CONFIDENCE.name) if name in given]
        self._outputs = [name for name in read if name not in _DEVICE_OUTPUTS]
        taken = {node.name for node in self._session.get_inputs()}
        self._inputs = [name for name in (*inputs, NEXT_IDS.name) if name in taken]
        self._no_extras = StepExtras.none(limits.vocab_size)
        self._limits = replace(limits, page_bytes=sum(pool.page_bytes for pool in self._pools))
        self._pages: list[NDArray[np.generic]] = []
        self._binding = self._session.io_binding()

    @property
    def limits(self) -> Limits:
        """What the engine can take."""
        return self._limits

    @property
    def num_pages(self) -> int:
        """Pages P of the pool, the null page included; 0 before `allocate`."""
        return self._pages[0].shape[0] if self._pages else 0

    def allocate(self, num_pages: int) -> None:
        """Make zeroed pools of `num_pages` pages, in place of those there were."""
        self._binding = self._session.io_binding()
        self._pages = [np.zeros((num_pages, *pool.page_shape), pool.dtype) for pool in self._pools]
        for pool, pages in zip(self._pools, self._pages, strict=True):
            shared = ort.OrtValue.ortvalue_from_numpy(pages)  # on a CPU the value uses the array's own memory
            self._binding.bind_ortvalue_input(pool.name, shared)
            self._binding.bind_ortvalue_output(pool.out_name, shared)

    def step(self, inputs: StepInputs) -> StepOutputs:
        """Run one step.

        Raises:
            RequestError: R302 the backend failed, R310 the inputs break the contract.
        """
        check_step(inputs, self._limits, self.num_pages)
        if NEXT_IDS.name in self._inputs and inputs.next_ids is None:
            raise RequestError("R310", "next_ids is missing", needed="the token after each row's", where="step inputs")
        binding = self._binding
        inputs = replace(inputs, extras=inputs.extras or self._no_extras)
        arrays = self._padding.apply(inputs, self._limits.page_size).arrays()
        for name in self._inputs:
            binding.bind_cpu_input(name, np.ascontiguousarray(arrays[name]))
        for name in self._outputs:
            binding.bind_output(name)  # anew every step: the last step's value has the last step's shape
        try:
            self._session.run_with_iobinding(binding)
        except (RuntimeError, *_ORT_ERRORS) as error:  # bound runs raise plain RuntimeError
            raise RequestError("R302", f"the step failed: {error}", where="onnxruntime") from error
        values = binding.get_outputs()[-len(self._outputs) :]
        results = dict(zip(self._outputs, (value.numpy() for value in values), strict=True))
        return StepOutputs(**results)

    def scrub(self, pages: NDArray[np.int32]) -> None:
        """Zero these pages: int32 ``[n]``, page numbers."""
        for pool in self._pages:
            pool[pages] = 0


def _pools(
    session: ort.InferenceSession, graph: Path, step_inputs: Sequence[str], step_outputs: Sequence[str]
) -> list[_Pool]:
    """The page pools of a graph, after checking that all its names are the contract's."""
    inputs = {node.name: node for node in session.get_inputs()}
    outputs = {node.name for node in session.get_outputs()}
    pools = [
        _Pool(name, name.replace("kv_pages.", "kv_pages_out."), tuple(node.shape[1:]), _NUMPY_TYPES[node.type])
        for name, node in inputs.items()
        if name.startswith(_PAGE_INPUTS)
    ]
    needed_inputs = {*step_inputs, *(pool.name for pool in pools)}
    needed_outputs = {*step_outputs, *(pool.out_name for pool in pools)}
    for kind, found, needed, further in (
        ("inputs", set(inputs), needed_inputs, NEXT_IDS.name),
        ("outputs", outputs, needed_outputs, DRAFT_CONFIDENCE.name),
    ):
        if found - {further} != needed or not pools:
            text = f"missing {kind}: {sorted(needed - found)}; unknown: {sorted(found - needed - {further})}"
            raise LoadError("L031", text, needed="the step contract's names", where=str(graph))
    return pools
