# SPDX-License-Identifier: Apache-2.0
"""The page pools on the device: one buffer each where pages are updated in place, else two that change places.

Without plugin kernels TensorRT computes the new pages into memory of their own; what a step wrote is then what the next
one reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hspec_trt.runtime.trt.cuda import Cuda, DeviceMemory
from hspec_trt.runtime.trt.engine import Pool

Bindings = dict[str, tuple[int, tuple[int, ...]]]


class PagePools:
    """All pools of an engine.

    Attributes:
        num_pages: P, the null page included; 0 before `allocate`.
        reading: which buffer the next step reads; always 0 where pages are updated in place.
    """

    def __init__(self, cuda: Cuda, pools: Sequence[Pool], *, aliased: bool) -> None:
        self._cuda, self._pools = cuda, pools
        self._copies = 1 if aliased else 2
        self._buffers: list[list[DeviceMemory]] = []
        self.num_pages = 0
        self.reading = 0

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all pools and buffers."""
        return self._copies * sum(pool.page_bytes for pool in self._pools)

    def allocate(self, num_pages: int) -> None:
        """Make zeroed buffers, in place of those there were; nothing may use these any more."""
        for buffers in self._buffers:
            for buffer in buffers:
                buffer.free()
        self.num_pages, self.reading = num_pages, 0
        self._buffers = [
            [self._cuda.malloc(num_pages * pool.page_bytes) for _ in range(self._copies)] for pool in self._pools
        ]
        for buffers in self._buffers:
            for buffer in buffers:
                self._cuda.zero(buffer.address, buffer.nbytes)

    def inputs(self) -> Bindings:
        """Name to address and shape of the pools that the next step reads."""
        return {
            pool.name: (buffers[self.reading].address, (self.num_pages, *pool.page_shape))
            for pool, buffers in zip(self._pools, self._buffers, strict=True)
        }

    def outputs(self) -> Bindings:
        """Name to address and shape of the pools that it writes."""
        writing = (self.reading + 1) % self._copies
        return {
            pool.out_name: (buffers[writing].address, (self.num_pages, *pool.page_shape))
            for pool, buffers in zip(self._pools, self._buffers, strict=True)
        }

    def swap(self) -> None:
        """What was written is what is read next."""
        self.reading = (self.reading + 1) % self._copies

    def scrub(self, pages: Iterable[int]) -> None:
        """Zero these pages, in the stream's order."""
        for page in pages:
            for pool, buffers in zip(self._pools, self._buffers, strict=True):
                self._cuda.zero(buffers[self.reading].address + page * pool.page_bytes, pool.page_bytes)
