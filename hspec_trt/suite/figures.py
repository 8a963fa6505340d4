# SPDX-License-Identifier: Apache-2.0
"""From records to figures: mean accepted lengths with intervals, acceptance per position. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hspec_trt import dtypes
from hspec_trt.bundle import Manifest
from hspec_trt.intervals import Estimate, ratio_of_sums
from hspec_trt.memory import KvCost, drafter_parameters, kv_cost
from hspec_trt.suite.records import Record, Timing
from hspec_trt.suite.run import LOOKUP, OFF, SuiteResult

ALL: Final = "all"


@dataclass(frozen=True)
class DrafterFigures:
    """One row of the table.

    Attributes:
        lengths: by task, and "all": tokens of a decode step, the bonus token included.
        positions: share of the drafts verified at position 1, 2, .. that were accepted together with all before.
        steps, prompts: what the figures rest on.
        timing: None where nothing was timed.
        speedup: tokens a second against drafting off, from accepted length and step times; None without both.
        parameters: trained ones and heads; 0 without a drafter.
        kv: K/V of the engine that this row needs.
    """

    name: str
    lengths: dict[str, Estimate]
    positions: list[float]
    steps: int
    prompts: int
    timing: Timing | None
    speedup: Estimate | None
    parameters: int
    kv: KvCost


def figures(result: SuiteResult) -> list[DrafterFigures]:
    """Rows of all contestants that have records, in the order in which they ran."""
    records, timings = result.folder.records(), result.folder.timings()
    own = [name for name in result.manifests if name not in (OFF, LOOKUP)]
    rows = []
    for name, manifest in result.manifests.items():
        mine = [record for record in records if record.drafter == name]
        if mine:
            timing = timings.get(name if name in own else own[0])
            rows.append(_row(name, mine, manifest, timing))
    return rows


def accepted_length(records: Sequence[Record]) -> Estimate:
    """Tokens of a step over all records, with an interval over prompts."""
    return ratio_of_sums([record.emitted for record in records], [record.steps for record in records])


def acceptance_by_position(records: Sequence[Record]) -> list[float]:
    """Accepted over verified drafts at each position."""
    width = max((len(record.offered) for record in records), default=0)
    offered, accepted = np.zeros(width), np.zeros(width)
    for record in records:
        offered[: len(record.offered)] += record.offered
        accepted[: len(record.accepted)] += record.accepted
    shares: list[float] = (accepted / np.maximum(offered, 1.0)).tolist()
    return shares


def step_seconds(name: str, timing: Timing) -> float:
    """Seconds of a decode step of this contestant: the drafter's pass is left out where it does not draft."""
    return {OFF: timing.plain, LOOKUP: timing.verify}.get(name, timing.full) + timing.rest


def _row(name: str, records: list[Record], manifest: Manifest, timing: Timing | None) -> DrafterFigures:
    tasks = sorted({record.task for record in records})
    lengths = {task: accepted_length([record for record in records if record.task == task]) for task in tasks}
    lengths[ALL] = accepted_length(records)
    drafter = manifest.drafter if name not in (OFF, LOOKUP) else None
    counted = None if drafter is None else drafter_parameters(drafter)
    return DrafterFigures(
        name,
        lengths,
        acceptance_by_position(records),
        sum(record.steps for record in records),
        len(records),
        timing,
        None if timing is None else _speedup(name, lengths[ALL], timing),
        0 if counted is None else counted.layers + counted.heads,
        kv_cost(manifest.target, drafter, dtypes.BY_NAME[manifest.dtype]),
    )


def _speedup(name: str, length: Estimate, timing: Timing) -> Estimate:
    """Tokens a second over those of the same engine's plain steps; the interval is the accepted length's."""
    scale = (timing.plain + timing.rest) / step_seconds(name, timing)
    return Estimate(length.value * scale, length.low * scale, length.high * scale)
