# SPDX-License-Identifier: Apache-2.0
"""Calls the launchers of a plugin library under the recording driver, and prints what was launched beside what should.

A process of its own: the library opens libcuda.so.1 by name, and LD_LIBRARY_PATH decides which one that is. What
should be launched comes from `SourceOps`, whose runner here writes down instead of running.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from build_scripts.gpu_check import cases, table
from build_scripts.gpu_check.cases import PagedCase, Place, SampleCase, ScanCase, SharedCase
from build_scripts.gpu_check.library_ops import LibraryError, LibraryOps
from build_scripts.gpu_check.ops import Ops
from build_scripts.gpu_check.source_ops import DTYPE_NAMES, Argument, SourceOps, launch
from hspec_trt.contract import APPEND_KV, MAMBA2_BLOCK_SCAN, PAGED_ATTENTION, SAMPLE_TOKENS, SHARED_KV_ATTENTION, OpSpec
from plugins.kernels import geometry
from plugins.kernels.catalog import KERNELS
from plugins.kernels.geometry import Grid
from plugins.kernels.variants import Variant
from tests.plugins.launchers.shapes import APPEND, EMPTY, PAGED, SHARED, AppendCase, Case, all_cases, verify_width
from tests.support.recording_driver_build import MULTIPROCESSORS, constants
from tests.support.stand_in_driver import LIBRARY

ENQUEUE = "enqueue"
"""What the recording driver's enqueue.cpp writes before it calls that."""
WORKSPACE = "workspace"
SHIFTED = (
    (PAGED_ATTENTION, PAGED[0], WORKSPACE),
    (SHARED_KV_ATTENTION, SHARED[0], WORKSPACE),
    (MAMBA2_BLOCK_SCAN, table.ODD_SCAN[0], ""),
    (SAMPLE_TOKENS, table.ODD_SAMPLE[0], WORKSPACE),
    (APPEND_KV, APPEND[0], ""),
)
"""A case of each op, and whether it has a workspace."""
Launches = list[dict[str, Any]]


@dataclass
class WritingRunner:
    """A `Runner` that writes down each launch; keeps the tensors, so that no address comes twice."""

    multiprocessors: int = MULTIPROCESSORS
    launches: Launches = field(default_factory=list)
    kept: list[Argument] = field(default_factory=list)

    def __call__(self, variant: Variant, grid: Grid, args: Sequence[Argument]) -> None:
        """Write down."""
        names = [arg.name for arg in KERNELS[variant.kernel].args]
        told = {name: _told(arg) for name, arg in zip(names, args, strict=True)}
        self.launches.append(
            {"kernel": variant.kernel, "constants": constants(variant), "grid": list(grid), "args": told}
        )
        self.kept.extend(args)


def _misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of `tensor` that starts one element behind a multiple of 16 bytes."""
    room = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)
    return room[1:].view(tensor.shape).copy_(tensor)


def _told(arg: Argument) -> dict[str, int] | int | float:
    if isinstance(arg, torch.Tensor):
        return {"address": arg.data_ptr(), "bytes": arg.numel() * arg.element_size()}
    return arg


@dataclass
class WatchedOps(LibraryOps):
    """The library, and what the driver saw of each call.

    Attributes:
        driver: the recording driver.
        shifted: operand, or `WORKSPACE`, that does not start on 16 bytes.
        workspace: address and bytes of the last call's.
    """

    driver: ctypes.CDLL | None = None
    shifted: str = ""
    workspace: tuple[int, int] = (0, 0)

    def _call(self, name: str, *arguments: Any) -> None:
        if name == "hspec_trt_launch":
            data, size, _ = arguments[-3:]
            self.workspace = (data.value or 0, size.value)
            if self.shifted == WORKSPACE:
                data.value += 4
        super()._call(name, *arguments)

    def _launch(
        self,
        spec: OpSpec,
        values: dict[str, int | float],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> None:
        tensors = dict(zip(spec.operands, (*inputs, *outputs), strict=True))
        if self.shifted in tensors:
            tensors[self.shifted] = _misaligned(tensors[self.shifted])
        tensors |= {output: tensors[source] for output, source in spec.aliased.items()}
        given = list(tensors.values())
        super()._launch(spec, values, given[: len(inputs)], given[len(inputs) :])

    def append(self, case: AppendCase, key: torch.Tensor, pages: torch.Tensor, step: cases.PagedStep) -> None:
        """AppendKv, which `Ops` does not have."""
        values: dict[str, int | float] = {name: getattr(case, name) for name in APPEND_KV.attributes}
        inputs = (key, key, pages, step.page_table, step.token_rows, step.token_positions)
        poison, self.poison = self.poison, False  # its only output is the pages
        self._launch(APPEND_KV, values, inputs, (pages,))
        self.poison = poison


def _append_source(runner: WritingRunner, case: AppendCase, key: torch.Tensor, pages: torch.Tensor, step: Any) -> None:
    launch(
        runner, "append_kv", key.dtype, (case.head_dim, 0, case.page_size),
        geometry.append_grid(key.shape[0], case.num_kv_heads, case.head_dim),
        key=key, value=key, kv_pages=pages, page_table=step.page_table, token_rows=step.token_rows,
        token_positions=step.token_positions, output=torch.empty(0), num_rows=step.rows,
        max_pages=int(step.page_table.shape[1]), num_kv_heads=case.num_kv_heads,
    )  # fmt: skip


Call = Callable[[Ops], dict[str, torch.Tensor]]


def _call_of(case: Case, place: Place) -> Call:
    """A call of one op with the inputs of `case`, which gives its outputs by name."""
    if isinstance(case, PagedCase):
        paged = cases.paged_inputs(case, place)
        tensors = (paged.query, paged.key, paged.value, paged.kv_pages)
        width = verify_width(case, DTYPE_NAMES[place.dtype])
        return lambda ops: {
            "output": ops.paged_attention(case.shape, paged.step, *tensors, verify_width=width, splits=None)
        }
    if isinstance(case, SharedCase):
        shared = tuple(vars(cases.shared_inputs(case, place)).values())
        flags = {"causal": case.causal, "no_context": case.no_context}
        return lambda ops: {"output": ops.shared_kv_attention(case.shape, *shared, **flags)}
    if isinstance(case, ScanCase):
        scan = cases.scan_inputs(case, place)
        return lambda ops: {"output": ops.mamba2_block_scan(case.shape, scan.xbc, scan.dt, scan.weights, scan.state)}
    if isinstance(case, SampleCase):
        sample = tuple(vars(cases.sample_inputs(case, place)).values())
        return lambda ops: dict(zip(("ids", "logprobs", "finite"), ops.sample_tokens(*sample), strict=True))
    return _append_call(case, place)


def _append_call(case: AppendCase, place: Place) -> Call:
    paged = cases.paged_inputs(
        PagedCase("", case.rows, case.num_kv_heads, case.num_kv_heads, case.head_dim, case.page_size), place
    )

    def call(ops: Ops) -> dict[str, torch.Tensor]:
        if isinstance(ops, WatchedOps):
            ops.append(case, paged.key, paged.kv_pages, paged.step)
        elif isinstance(ops, SourceOps) and isinstance(ops.run, WritingRunner):
            _append_source(ops.run, case, paged.key, paged.kv_pages, paged.step)
        return {}

    return call


def _launched(lines: Sequence[str]) -> Launches:
    found: Launches = []
    for line in lines:
        if not line.startswith("launch "):
            continue
        _, kernel, told, *numbers = line.split()
        x, y, z, threads, shared, stream, *values = map(int, numbers)
        names = [arg.name for arg in KERNELS[kernel].args] + ["global_scratch", "profile_scratch"]
        found.append(
            {"kernel": kernel, "constants": told, "grid": [x, y, z], "threads": threads, "shared": shared,
             "stream": stream, "args": dict(zip(names, values, strict=True))}
        )  # fmt: skip
    return found


def _watched(call: Call, ops: WatchedOps) -> dict[str, Any]:
    assert ops.driver is not None
    outputs, fault = {}, ""
    try:
        outputs = {name: tensor.data_ptr() for name, tensor in call(ops).items()}
    except LibraryError as error:
        fault = str(error)
    lines = ops.driver.recording_take().decode().splitlines()
    after = lines[lines.index(ENQUEUE) + 1 :] if ENQUEUE in lines else []
    return {
        "launches": _launched(lines),
        "outputs": outputs,
        "workspace": ops.workspace,
        "fault": fault,
        "other_calls_of_enqueue": [line for line in after if not line.startswith("launch ")],
    }


def _entry(case: Case, dtype: torch.dtype, libraries: dict[str, WatchedOps]) -> dict[str, Any]:
    call, runner = _call_of(case, Place(dtype=dtype)), WritingRunner()
    call(SourceOps(runner))
    told = {way: _watched(call, ops) for way, ops in libraries.items()}
    return {"case": f"{case.name} {dtype}", "wanted": runner.launches, **told}


def _lines(libraries: dict[str, WatchedOps]) -> Iterator[dict[str, Any]]:
    for dtype in (torch.float16, torch.bfloat16):
        for case in all_cases():
            yield {"kind": "case", **_entry(case, dtype, libraries)}
    for case in EMPTY:
        yield {"kind": "empty", **_entry(case, torch.float16, libraries)}
    yield from _misaligned_lines(libraries)


def _misaligned_lines(libraries: dict[str, WatchedOps]) -> Iterator[dict[str, Any]]:
    for spec, case, workspace in SHIFTED:
        call = _call_of(case, Place(dtype=torch.float16))
        for name in (*(name for name in spec.operands if name not in spec.aliased), workspace):
            if name:
                shifted = {way: replace(ops, shifted=name) for way, ops in libraries.items()}
                told = {way: _watched(call, ops) for way, ops in shifted.items()}
                yield {"kind": "misaligned", "op": spec.name, "operand": name, **told}


def main() -> int:
    """Arguments: the plugin library (also in PLUGIN_LIBRARY), and the driver's file."""
    library, driver_file = Path(sys.argv[1]), Path(sys.argv[2])
    driver = ctypes.CDLL(LIBRARY)
    driver.recording_take.restype = ctypes.c_char_p
    # The plugin first: it must not find kernels that a call has loaded.
    libraries = {"enqueue": WatchedOps(driver_file, driver=driver), "call": WatchedOps(library, driver=driver)}
    for line in _lines(libraries):
        print(json.dumps(line))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
