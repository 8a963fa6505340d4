# SPDX-License-Identifier: Apache-2.0
"""What each kind of timed step runs: without drafts, drafts from elsewhere, and the drafter's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hspec_trt.runtime.engine import load_engine
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.runtime.session import StepInputs, StepOutputs
from hspec_trt.suite.timing import ROUNDS, time_steps
from tests.support.engines import make_engine
from tests.support.golden_pair import hspec_pair


def test_the_drafter_runs_in_its_own_steps_only(tmp_path: Path) -> None:
    core = load_engine(make_engine(tmp_path / "e", hspec_pair("hspec_qwen3")), RuntimeOptions(num_threads=1)).core
    seen: list[tuple[int, bool]] = []
    step = core.session.step

    def watched(inputs: StepInputs) -> StepOutputs:
        seen.append((int(inputs.cu_verify_lens[-1]), bool(inputs.draft_rows.size)))
        return step(inputs)

    core.session.step = watched  # type: ignore[method-assign]
    timing = time_steps(core, [3, 1, 4, 1, 5], steps=2)
    kinds = np.array([timing.plain, timing.verify, timing.full])
    assert kinds.shape == (3, ROUNDS, 2) and kinds.min() > 0
    kinds = {(width, drafted): seen.count((width, drafted)) for width, drafted in seen}
    for kind in ((1, False), (8, False), (8, True)):
        assert kinds[kind] >= 2 * ROUNDS
    assert core.is_idle
