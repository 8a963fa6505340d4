# SPDX-License-Identifier: Apache-2.0
"""CUDA's runtime API with status codes turned into errors, and memory with an owner.

`Cuda` is given the module ``cuda.bindings.runtime`` (or a stand-in) and is the only one to call it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

ALIGNMENT: Final = 256
"""What cudaMalloc aligns to, and TensorRT asks of an address."""


class CudaError(Exception):
    """A call that CUDA refused; the text names call and status."""


@dataclass(frozen=True)
class DeviceInfo:
    """This machine's GPU.

    Attributes:
        sm: architecture, such as 89.
        free, total: bytes of memory.
    """

    name: str
    sm: int
    free: int
    total: int


class Cuda:
    """The calls that a session makes, all on one stream of its own.

    Args:
        api: ``cuda.bindings.runtime``.

    Raises:
        CudaError: there is no GPU or no driver.
    """

    def __init__(self, api: Any) -> None:
        self._api = api
        if self._call("cudaGetDeviceCount") < 1:
            raise CudaError("cudaGetDeviceCount: 0 devices")
        self.stream = self._call("cudaStreamCreateWithFlags", api.cudaStreamNonBlocking)

    def _call(self, name: str, *arguments: object) -> Any:
        code, *values = getattr(self._api, name)(*arguments)
        if int(code) != 0:
            raise CudaError(f"{name}: {code.name}")
        return values[0] if len(values) == 1 else tuple(values)

    def device(self) -> DeviceInfo:
        """The current device."""
        properties = self._call("cudaGetDeviceProperties", self._call("cudaGetDevice"))
        free, total = self._call("cudaMemGetInfo")
        name = properties.name.decode() if isinstance(properties.name, bytes) else str(properties.name)
        return DeviceInfo(name.rstrip("\0"), 10 * properties.major + properties.minor, free, total)

    def malloc(self, nbytes: int) -> DeviceMemory:
        """Device memory; at least one byte, so that its address is never null."""
        return DeviceMemory(self, int(self._call("cudaMalloc", max(nbytes, 1))), nbytes)

    def malloc_host(self, nbytes: int) -> PinnedMemory:
        """Page-locked host memory, which copies can read and write while the host goes on."""
        address = int(self._call("cudaMallocHost", max(nbytes, 1)))
        view = np.ctypeslib.as_array((ctypes.c_uint8 * max(nbytes, 1)).from_address(address))
        return PinnedMemory(self, address, view)

    def free(self, address: int) -> None:
        """Give device memory back."""
        self._call("cudaFree", address)

    def free_host(self, address: int) -> None:
        """Give page-locked memory back."""
        self._call("cudaFreeHost", address)

    def upload(self, target: int, source: int, nbytes: int) -> None:
        """Copy from page-locked memory to the device, in the stream's order."""
        self._copy(target, source, nbytes, "cudaMemcpyHostToDevice")

    def download(self, target: int, source: int, nbytes: int) -> None:
        """Copy from the device to page-locked memory, in the stream's order."""
        self._copy(target, source, nbytes, "cudaMemcpyDeviceToHost")

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the device, in the stream's order."""
        self._copy(target, source, nbytes, "cudaMemcpyDeviceToDevice")

    def _copy(self, target: int, source: int, nbytes: int, kind: str) -> None:
        direction = getattr(self._api.cudaMemcpyKind, kind)
        self._call("cudaMemcpyAsync", target, source, nbytes, direction, self.stream)

    def zero(self, address: int, nbytes: int) -> None:
        """Zero device memory, in the stream's order."""
        self._call("cudaMemsetAsync", address, 0, nbytes, self.stream)

    def synchronize(self) -> None:
        """Wait for all that was asked of the stream."""
        self._call("cudaStreamSynchronize", self.stream)

    def event(self) -> Any:
        """An event for `record` and `wait`."""
        return self._call("cudaEventCreateWithFlags", self._api.cudaEventDisableTiming)

    def record(self, event: Any) -> None:
        """Mark this point of the stream."""
        self._call("cudaEventRecord", event, self.stream)

    def wait(self, event: Any) -> None:
        """Wait until the stream has passed the marked point; at once where it was never marked."""
        self._call("cudaEventSynchronize", event)

    def begin_capture(self) -> None:
        """From here on the stream's work is recorded, not run."""
        mode = self._api.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._call("cudaStreamBeginCapture", self.stream, mode)

    def end_capture(self) -> Any:
        """What was recorded, as a graph that `launch` runs."""
        graph = self._call("cudaStreamEndCapture", self.stream)
        try:
            return self._call("cudaGraphInstantiate", graph, 0)
        finally:
            self._call("cudaGraphDestroy", graph)

    def launch(self, graph: Any) -> None:
        """Run a graph, in the stream's order."""
        self._call("cudaGraphLaunch", graph, self.stream)

    def destroy_graph(self, graph: Any) -> None:
        """Drop a graph that no longer runs."""
        self._call("cudaGraphExecDestroy", graph)


@dataclass
class DeviceMemory:
    """A block of device memory."""

    cuda: Cuda
    address: int
    nbytes: int

    def free(self) -> None:
        """Give it back; nothing may use it any more."""
        self.cuda.free(self.address)


@dataclass
class PinnedMemory:
    """A block of page-locked host memory and its bytes."""

    cuda: Cuda
    address: int
    view: NDArray[np.uint8]

    def free(self) -> None:
        """Give it back; nothing may use it any more."""
        self.cuda.free_host(self.address)
