# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802, N815 - the names are those of what is doubled
"""A GPU on host memory: the part of CUDA's runtime API that a session uses.

It is as lazy as a GPU may be: what is asked of a stream runs only when somebody waits, so host memory that is read or
written too early has the wrong content. New memory is full of `POISON`; addresses outside live allocations, copies in
the wrong direction and memory that was freed under way end in `Misuse`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace

import numpy as np

POISON = 0xFF  # not a number in every float type, -1 in every integer


class Misuse(AssertionError):
    """Something that would be undefined behaviour on a real GPU."""


class Status(IntEnum):
    cudaSuccess = 0
    cudaErrorMemoryAllocation = 2
    cudaErrorInsufficientDriver = 35
    cudaErrorIllegalAddress = 700


Operation = Callable[[], None]


@dataclass
class Stream:
    handle: int
    queue: list[Operation] = field(default_factory=list)
    captured: list[Operation] | None = None

    def __int__(self) -> int:
        return self.handle

    def add(self, operation: Operation) -> None:
        (self.queue if self.captured is None else self.captured).append(operation)

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        while self.queue and not until():
            self.queue.pop(0)()


@dataclass
class Event:
    stream: Stream | None = None
    asked: int = 0
    passed: int = 0


@dataclass
class Graph:
    operations: list[Operation]
    destroyed: bool = False


@dataclass(frozen=True)
class Memory:
    address: int
    array: np.ndarray
    on_device: bool


class HostGpu:
    """Stands for the module ``cuda.bindings.runtime``.

    Attributes:
        total: bytes of device memory.
        fail: name of a call to the status that it returns from now on.
        graphs: all that were made, executable or not.
    """

    cudaStreamNonBlocking = 1
    cudaEventDisableTiming = 2
    cudaMemcpyKind = SimpleNamespace(
        cudaMemcpyHostToDevice=(False, True),
        cudaMemcpyDeviceToHost=(True, False),
        cudaMemcpyDeviceToDevice=(True, True),
    )
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)

    def __init__(self, *, sm: int = 89, total: int = 1 << 30) -> None:
        self.sm, self.total = sm, total
        self.memory: dict[int, Memory] = {}
        self.streams: dict[int, Stream] = {}
        self.fail: dict[str, Status] = {}
        self._freed: list[Memory] = []  # kept, so that no address comes back
        self.copies = 0
        self.graphs: list[Graph] = []

    def __getattribute__(self, name: str) -> object:
        found = object.__getattribute__(self, name)
        if name.startswith("cuda") and callable(found):
            status = self.fail.get(name)
            return found if status is None else lambda *arguments: self._failed(name, status, arguments)
        return found

    def _failed(self, name: str, status: Status, arguments: tuple) -> tuple:
        """A capture that fails has ended all the same; other calls that fail do nothing."""
        if name == "cudaStreamEndCapture":
            arguments[0].captured = None
        return status, None

    # Devices

    def cudaGetDeviceCount(self) -> tuple:
        return Status.cudaSuccess, 1

    def cudaGetDevice(self) -> tuple:
        return Status.cudaSuccess, 0

    def cudaGetDeviceProperties(self, device: int) -> tuple:
        return Status.cudaSuccess, SimpleNamespace(name=b"Host GPU", major=self.sm // 10, minor=self.sm % 10)

    def cudaMemGetInfo(self) -> tuple:
        used = sum(one.array.nbytes for one in self.memory.values() if one.on_device)
        return Status.cudaSuccess, self.total - used, self.total

    # Memory

    def cudaMalloc(self, nbytes: int) -> tuple:
        if nbytes > self.cudaMemGetInfo()[1]:
            return Status.cudaErrorMemoryAllocation, None
        return Status.cudaSuccess, self._allocate(nbytes, on_device=True)

    def cudaMallocHost(self, nbytes: int) -> tuple:
        return Status.cudaSuccess, self._allocate(nbytes, on_device=False)

    def cudaFree(self, address: int) -> tuple:
        return self._free(address, on_device=True)

    def cudaFreeHost(self, address: int) -> tuple:
        return self._free(address, on_device=False)

    def _allocate(self, nbytes: int, *, on_device: bool) -> int:
        raw = np.full(nbytes + 512, POISON, np.uint8)
        start = -raw.ctypes.data % 256
        array = raw[start : start + nbytes]
        self.memory[array.ctypes.data] = Memory(array.ctypes.data, array, on_device)
        return array.ctypes.data

    def _free(self, address: int, *, on_device: bool) -> tuple:
        memory = self.memory.pop(address, None)
        if memory is None or memory.on_device != on_device:
            raise Misuse(f"{address:#x} is freed, but was not allocated there")
        memory.array[:] = POISON
        self._freed.append(memory)
        return (Status.cudaSuccess,)

    def bytes_at(self, address: int, nbytes: int, *, on_device: bool) -> np.ndarray:
        """The bytes of a range, which must lie in one live allocation of that kind."""
        for memory in self.memory.values():
            if memory.address <= address and address + nbytes <= memory.address + memory.array.nbytes:
                if memory.on_device != on_device:
                    raise Misuse(f"{address:#x} is memory of the {'device' if memory.on_device else 'host'}")
                return memory.array[address - memory.address :][:nbytes]
        raise Misuse(f"{nbytes} bytes at {address:#x} are in no live allocation")

    def cudaMemcpyAsync(self, target: int, source: int, nbytes: int, kind: tuple[bool, bool], stream: Stream) -> tuple:
        def copy() -> None:
            to = self.bytes_at(target, nbytes, on_device=kind[1])
            to[:] = self.bytes_at(source, nbytes, on_device=kind[0])

        self.bytes_at(target, nbytes, on_device=kind[1])
        self.bytes_at(source, nbytes, on_device=kind[0])
        self.copies += 1
        stream.add(copy)
        return (Status.cudaSuccess,)

    def cudaMemsetAsync(self, address: int, value: int, nbytes: int, stream: Stream) -> tuple:
        def fill() -> None:
            self.bytes_at(address, nbytes, on_device=True)[:] = value

        self.bytes_at(address, nbytes, on_device=True)
        stream.add(fill)
        return (Status.cudaSuccess,)

    # Streams and events

    def cudaStreamCreateWithFlags(self, flags: int) -> tuple:
        stream = Stream(len(self.streams) + 1)
        self.streams[stream.handle] = stream
        return Status.cudaSuccess, stream

    def cudaStreamSynchronize(self, stream: Stream) -> tuple:
        if stream.captured is not None:
            raise Misuse("a stream that is being captured cannot be waited for")
        stream.run()
        return (Status.cudaSuccess,)

    def cudaEventCreateWithFlags(self, flags: int) -> tuple:
        return Status.cudaSuccess, Event()

    def cudaEventRecord(self, event: Event, stream: Stream) -> tuple:
        event.stream, event.asked = stream, event.asked + 1
        number = event.asked

        def mark() -> None:
            event.passed = number

        stream.add(mark)
        return (Status.cudaSuccess,)

    def cudaEventSynchronize(self, event: Event) -> tuple:
        if event.stream is not None:
            event.stream.run(lambda: event.passed == event.asked)
        return (Status.cudaSuccess,)

    # Graphs

    def cudaStreamBeginCapture(self, stream: Stream, mode: int) -> tuple:
        stream.captured = []
        return (Status.cudaSuccess,)

    def cudaStreamEndCapture(self, stream: Stream) -> tuple:
        operations, stream.captured = stream.captured, None
        return Status.cudaSuccess, self._graph(operations or [])

    def cudaGraphInstantiate(self, graph: Graph, flags: int) -> tuple:
        return Status.cudaSuccess, self._graph(list(graph.operations))

    def _graph(self, operations: list[Operation]) -> Graph:
        self.graphs.append(Graph(operations))
        return self.graphs[-1]

    def cudaGraphDestroy(self, graph: Graph) -> tuple:
        graph.destroyed = True
        return (Status.cudaSuccess,)

    cudaGraphExecDestroy = cudaGraphDestroy

    def cudaGraphLaunch(self, graph: Graph, stream: Stream) -> tuple:
        if graph.destroyed:
            raise Misuse("a graph that was destroyed is launched")
        stream.queue.extend(graph.operations)
        return (Status.cudaSuccess,)
