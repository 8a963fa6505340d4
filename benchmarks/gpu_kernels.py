# SPDX-License-Identifier: Apache-2.0
"""Time and achieved bandwidth of the GPU kernels, beside a measured device copy and what others offer for the work.

    python -m benchmarks.gpu_kernels                    # kernels from source (Triton's just-in-time compiler)
    python -m benchmarks.gpu_kernels --library PATH     # launchers and compiled code of the plugin library
    python -m benchmarks.gpu_kernels --cpu              # tiny sizes under the interpreter: shows that it works, no more

Bytes are the least that the op must move: each K and V element in range once, each logit once. Every run starts with a
second-level cache full of other data; the median of the runs counts. Calls are replayed from a CUDA graph, as an engine
does, so the cost of launching from Python is not in them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.gpu_kernels_cases import Subject

RUNS = 30
FLUSH_BYTES = 256 << 20
COPY_BYTES = 1 << 30


@dataclass(frozen=True)
class Line:
    """One timed thing.

    Attributes:
        nbytes: the least bytes that the op must move; 0 where that says nothing.
    """

    name: str
    microseconds: float
    nbytes: int

    @property
    def bandwidth(self) -> float:
        """GB/s."""
        return self.nbytes / self.microseconds / 1e3


class Clock:
    """Median time of a call, with a cold cache where there is a GPU."""

    def __init__(self, device: str, runs: int) -> None:
        import torch

        self.torch, self.device, self.runs = torch, device, runs
        self.flush = torch.empty(FLUSH_BYTES if device == "cuda" else 1, dtype=torch.uint8, device=device)

    def microseconds(self, work: Callable[[], object]) -> float:
        """Time of one call; two calls before the first timed one."""
        work(), work()
        replay = self._replayable(work)
        return statistics.median(self._once(replay) for _ in range(self.runs))

    def _replayable(self, work: Callable[[], object]) -> Callable[[], object]:
        if self.device == "cpu":
            return work
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            work()
        return graph.replay

    def _once(self, work: Callable[[], object]) -> float:
        self.flush.zero_()
        if self.device == "cpu":
            start = time.perf_counter()
            work()
            return (time.perf_counter() - start) * 1e6
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3


def measure(subject: Subject, clock: Clock) -> list[Line]:
    """Our line first, then a line for each peer that can run."""
    lines = [Line(f"{subject.name}: ours", clock.microseconds(subject.ours), subject.nbytes)]
    for name, work in subject.peers.items():
        if work is not None:
            lines.append(Line(f"{subject.name}: {name}", clock.microseconds(work), subject.nbytes))
    return lines


def copy_line(clock: Clock, nbytes: int) -> Line:
    """A device copy: what the memory can do, reads and writes counted."""
    source = clock.torch.empty(nbytes, dtype=clock.torch.uint8, device=clock.device)
    target = clock.torch.empty_like(source)
    return Line("device copy", clock.microseconds(lambda: target.copy_(source)), 2 * nbytes)


def print_line(line: Line, copy: Line) -> None:
    share = 100.0 * line.bandwidth / copy.bandwidth
    print(f"{line.name:<72} {line.microseconds:10.1f} us {line.bandwidth:9.1f} GB/s {share:6.1f} % of copy", flush=True)


def parser() -> argparse.ArgumentParser:
    parsed = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parsed.add_argument("--library", type=Path, help="plugin library whose launchers and kernels are timed")
    parsed.add_argument("--runs", type=int, default=RUNS, help="timed calls (default: %(default)s)")
    parsed.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parsed.add_argument("--cpu", action="store_true", help="tiny sizes under Triton's interpreter")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.cpu:
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    from benchmarks.gpu_kernels_cases import subjects
    from build_scripts.gpu_check.cases import Place
    from build_scripts.gpu_check.runners import choose_ops

    device = "cpu" if options.cpu else "cuda"
    ops = choose_ops(options.library, cpu=options.cpu, poison=False)
    name = "CPU, interpreted" if options.cpu else torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}, median of {options.runs} runs")
    clock = Clock(device, options.runs)
    copy = copy_line(clock, 1 << 20 if options.cpu else COPY_BYTES)
    print_line(copy, copy)
    place = Place(device, torch.float16 if options.cpu else getattr(torch, options.dtype))
    for subject in subjects(ops, place, small=options.cpu):
        for line in measure(subject, clock):
            print_line(line, copy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
