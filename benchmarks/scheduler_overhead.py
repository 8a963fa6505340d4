# SPDX-License-Identifier: Apache-2.0
"""Time of the runtime's own work per step: everything but the session, at 1 to 128 decode rows.

The session here answers at once with drafts accepted at random, so what is measured is planning, packing, committing
and telling. Run it with one thread: ``python -m benchmarks.scheduler_overhead``.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from numpy.typing import NDArray

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.session import Limits, StepInputs, StepOutputs

NUM_DRAFTS = 7
VOCAB_SIZE = 32_000


class InstantSession:
    """Emits random tokens: 1 to G + 1 for a verify row, as many as its drafts allow."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.num_pages = limits, 0
        self.seconds = 0.0
        self._rng = np.random.default_rng(0)
        self._ids = self._rng.integers(10, VOCAB_SIZE, (limits.max_rows, NUM_DRAFTS + 1)).astype(np.int32)
        self._logprobs = np.zeros((limits.max_rows, NUM_DRAFTS + 1), np.float32)
        self._finite = np.ones(limits.max_rows, bool)

    def allocate(self, num_pages: int) -> None:
        """Pages are only counted."""
        self.num_pages = num_pages

    def scrub(self, pages: NDArray[np.int32]) -> None:
        """Nothing to zero."""

    def step(self, inputs: StepInputs) -> StepOutputs:
        """Answer at once; the time it takes is not the runtime's."""
        start = time.perf_counter()
        rows, widths = inputs.context_lens.size, np.diff(inputs.cu_verify_lens)
        lens = np.minimum(self._rng.integers(1, NUM_DRAFTS + 2, rows), widths).astype(np.int32)
        drafts = self._ids[: inputs.draft_rows.size, :NUM_DRAFTS]
        outputs = StepOutputs(self._ids[:rows], lens, self._logprobs[:rows], drafts, self._finite[:rows])
        self.seconds += time.perf_counter() - start
        return outputs


def measure(rows: int, waiting: int, steps: int, *, streaming: bool) -> dict[str, float]:
    """Median and 90th percentile of a step's own time, milliseconds."""
    limits = Limits(VOCAB_SIZE, NUM_DRAFTS, 64, 1, rows, 4096, 16_384, True, 16_384)
    session = InstantSession(limits)
    session.allocate(rows * 300)
    core = EngineCore(session, eos_ids=frozenset({2}))
    params = SamplingParams(temperature=0.0, max_tokens=16_000, drafts="on")
    for _ in range(rows + waiting):
        core.add(core.make([5] * 64, params, lambda update: None, streaming=streaming))
    for _ in range(20):
        core.step()
    times = []
    for _ in range(steps):
        before = session.seconds
        start = time.perf_counter()
        core.step()
        times.append(time.perf_counter() - start - (session.seconds - before))
    median, high = np.percentile(np.array(times) * 1e3, [50, 90])
    return {"rows": rows, "waiting": waiting, "streaming": streaming, "median_ms": median, "p90_ms": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cases = [(1, 0, False), (8, 0, False), (32, 0, False), (128, 0, False), (128, 10_000, False), (128, 0, True)]
    results = [measure(rows, waiting, args.steps, streaming=streaming) for rows, waiting, streaming in cases]
    if args.json:
        print(json.dumps(results))
        return
    print("rows  waiting  streaming  median ms  p90 ms")
    for r in results:
        print(f"{r['rows']:4}  {r['waiting']:7}  {r['streaming']!s:9}  {r['median_ms']:9.3f}  {r['p90_ms']:6.3f}")


if __name__ == "__main__":
    main()
