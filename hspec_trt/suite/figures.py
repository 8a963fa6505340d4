# SPDX-License-Identifier: Apache-2.0
"""From records to figures with intervals: accepted lengths, acceptance per position, step times. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hspec_trt import dtypes
from hspec_trt.bundle import Manifest
from hspec_trt.intervals import Estimate, Samples, bootstrap, ratio_of_sums, total_ratio
from hspec_trt.memory import KvCost, drafter_parameters, kv_cost
from hspec_trt.suite.records import Record, Timing
from hspec_trt.suite.run import LOOKUP, OFF, SuiteResult

ALL: Final = "all"


@dataclass(frozen=True)
class StepCost:
    """Seconds of a decode step of one row, as this drafter takes them; intervals over rounds.

    Attributes:
        target: the target for one token, or for G + 1 where drafts are verified.
        drafting: what the drafter's pass adds.
        rest: outside the engine's graph.
        tokens_per_second: from the accepted length; its interval is over prompts and rounds.
        speedup: the same over that of drafting off with the same engine.
        load: runnable processes while it was measured.
    """

    target: Estimate
    drafting: Estimate
    rest: Estimate
    tokens_per_second: Estimate
    speedup: Estimate
    load: float


@dataclass(frozen=True)
class DrafterFigures:
    """One row of the table.

    Attributes:
        lengths: by task, and "all": tokens of a decode step, the bonus token included.
        positions: share of the drafts verified at position 1, 2, .. that were accepted together with all before.
        steps, prompts: what the figures rest on.
        cost: None where nothing was timed.
        parameters: trained ones and heads; 0 without a drafter.
        kv: K/V of the engine that this row needs.
    """

    name: str
    lengths: dict[str, Estimate]
    positions: list[Estimate]
    steps: int
    prompts: int
    cost: StepCost | None
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


def acceptance_by_position(records: Sequence[Record]) -> list[Estimate]:
    """Accepted over verified drafts at each position that any were verified at, with intervals over prompts."""

    def totals(of: Callable[[Record], tuple[int, ...]], place: int) -> list[int]:
        return [of(record)[place] if place < len(of(record)) else 0 for record in records]

    shares = []
    for place in range(max((len(record.offered) for record in records), default=0)):
        offered = totals(lambda record: record.offered, place)
        if any(offered):
            shares.append(ratio_of_sums(totals(lambda record: record.accepted, place), offered))
    return shares


def step_cost(name: str, records: Sequence[Record], timing: Timing) -> StepCost:
    """What a contestant's steps take: the drafter's pass is left out where it does not draft."""
    last = {OFF: timing.plain, LOOKUP: timing.verify}.get(name, timing.full)
    target = timing.plain if name == OFF else timing.verify
    rounds = np.stack([target, last, timing.plain], axis=1)  # [rounds, 3, (in the graph, outside)]
    counts = np.array([[record.emitted, record.steps] for record in records], np.float64)

    def over_rounds(seconds: Samples) -> Samples:
        middle: Samples = np.median(seconds, axis=1)
        return middle

    def whole(drawn: Samples, kind: int) -> Samples:
        return over_rounds(drawn[:, :, kind].sum(-1))

    return StepCost(
        target=bootstrap(lambda drawn: over_rounds(drawn[:, :, 0, 0]), rounds),
        drafting=bootstrap(lambda drawn: over_rounds(drawn[:, :, 1, 0] - drawn[:, :, 0, 0]), rounds),
        rest=bootstrap(lambda drawn: over_rounds(drawn[:, :, 1, 1]), rounds),
        tokens_per_second=bootstrap(lambda told, drawn: total_ratio(told) / whole(drawn, 1), counts, rounds),
        speedup=bootstrap(lambda told, drawn: total_ratio(told) * whole(drawn, 2) / whole(drawn, 1), counts, rounds),
        load=timing.load,
    )


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
        None if timing is None else step_cost(name, records, timing),
        0 if counted is None else counted.layers + counted.heads,
        kv_cost(manifest.target, drafter, dtypes.BY_NAME[manifest.dtype]),
    )
