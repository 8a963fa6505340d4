# SPDX-License-Identifier: Apache-2.0
"""A runner that watches every address a kernel touches under the interpreter: nothing outside its arguments.

Each argument is put between guards, so that a step over its end is not a step into the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from triton.runtime.interpreter import InterpreterBuilder

from build_scripts.gpu_check.runners import TritonRunner
from build_scripts.gpu_check.source_ops import Argument
from plugins.kernels.catalog import KERNELS
from plugins.kernels.geometry import Grid
from plugins.kernels.variants import Variant

GUARD_BYTES = 4096


@dataclass
class Touched:
    """Addresses read and written, one array per access, and the argument that each lies in."""

    names: tuple[str, ...]
    starts: np.ndarray
    ends: np.ndarray
    reads: dict[str, list[np.ndarray]] = field(default_factory=dict)
    stray: list[str] = field(default_factory=list)

    def note(self, kind: str, addresses: np.ndarray, itemsize: int) -> None:
        if addresses.size == 0:
            return
        owner = np.searchsorted(self.starts, addresses, side="right") - 1
        inside = (owner >= 0) & (addresses + itemsize <= self.ends[owner])
        if not inside.all():
            wrong = int(addresses[~inside][0])
            nearest = self.names[max(int(owner[~inside][0]), 0)]
            self.stray.append(f"{kind} at {wrong - int(self.starts[self.names.index(nearest)])} bytes from {nearest}")
        if kind == "read":
            for index in np.unique(owner[inside]):
                self.reads.setdefault(self.names[index], []).append(addresses[inside][owner[inside] == index])

    def read_counts(self, name: str) -> tuple[int, int]:
        """How many element reads of an argument there were, and of how many different elements."""
        every = np.concatenate(self.reads[name])
        return every.size, np.unique(every).size


def _guarded(tensor: torch.Tensor) -> torch.Tensor:
    guard = GUARD_BYTES // tensor.element_size()
    buffer = torch.zeros(tensor.numel() + 2 * guard, dtype=tensor.dtype)
    copy = buffer[guard : guard + tensor.numel()].view(tensor.shape)
    return copy.copy_(tensor)


@contextmanager
def _watching(touched: Touched) -> Iterator[None]:
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def note(kind, pointers, mask):  # type: ignore[no-untyped-def]
        touched.note(kind, pointers.data[mask.data].astype(np.int64), pointers.get_element_ty().primitive_bitwidth // 8)

    def watched_load(self, ptrs, mask, *rest):  # type: ignore[no-untyped-def]
        note("read", ptrs, mask)
        return load(self, ptrs, mask, *rest)

    def watched_store(self, ptrs, value, mask, *rest):  # type: ignore[no-untyped-def]
        note("write", ptrs, mask)
        return store(self, ptrs, value, mask, *rest)

    InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = watched_load, watched_store
    try:
        yield
    finally:
        InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = load, store


@dataclass
class WatchedRunner:
    """Runs kernels like `TritonRunner`, and remembers what each launch touched."""

    multiprocessors: int = 8
    launches: list[tuple[str, Touched]] = field(default_factory=list)

    def __call__(self, variant: Variant, grid: Grid, args: Sequence[Argument]) -> None:
        copies = [_guarded(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
        named = [
            (spec.name, copy)
            for spec, copy in zip(KERNELS[variant.kernel].args, copies, strict=True)
            if isinstance(copy, torch.Tensor)
        ]
        named.sort(key=lambda pair: pair[1].data_ptr())
        starts = np.array([copy.data_ptr() for _, copy in named])
        sizes = np.array([copy.numel() * copy.element_size() for _, copy in named])
        touched = Touched(tuple(name for name, _ in named), starts, starts + sizes)
        with _watching(touched):
            TritonRunner(self.multiprocessors)(variant, grid, copies)
        for arg, copy in zip(args, copies, strict=True):
            if isinstance(arg, torch.Tensor) and isinstance(copy, torch.Tensor):
                arg.copy_(copy)
        self.launches.append((variant.kernel, touched))

    def touched_by(self, kernel: str) -> Touched:
        """What the only launch of `kernel` touched."""
        (found,) = [touched for name, touched in self.launches if name == kernel]
        return found

    @property
    def stray(self) -> list[str]:
        """Accesses outside the arguments, of all launches."""
        return [f"{kernel}: {text}" for kernel, touched in self.launches for text in touched.stray]
