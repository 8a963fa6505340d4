# SPDX-License-Identifier: Apache-2.0
"""The frame that every drafter fits in: what a step offers it, and what it must answer.

A drafter is a class with the methods of `Drafter`, known to `hspec_trt.graph.drafters.drafter_for`. It drafts for the D
rows named by the step input ``draft_rows``; D may be 0, so no shape may be inferred by -1 where D is a factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import onnx_ir as ir

from hspec_trt.config.build import BuildConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.contract import ANCHOR_WINDOW_ATTENTION, SHARED_KV_ATTENTION, OpSpec
from hspec_trt.graph.layers import Scope
from hspec_trt.graph.rows import PackedRows
from hspec_trt.graph.target import TargetStates
from hspec_trt.graph.verify import NO_TOKEN, Verdict, sample


@dataclass(frozen=True)
class DraftContext:
    """One step as a drafter sees it.

    Attributes:
        num_drafts: G, tokens to propose.
        inputs: the step's inputs by contract name.
        states: the target's hidden states [N, H] and pages.
        rows: packed rows; drafters with a cache of their own append from them.
        draft_rows: int32 [D], the rows to draft for.
        anchor_ids: int32 [D], the token emitted last.
        anchor_positions: int32 [D], its position p; the target has run positions 0 .. p - 1.
        last_tokens: int64 [D], packed index of the token at p - 1, whose logits gave the anchor.
        page_table: int32 [D, M].
        drawn_ids: int32 [K], the token drawn from each row of logits.
    """

    scope: Scope
    target: TargetConfig
    build: BuildConfig
    num_drafts: int
    inputs: Mapping[str, ir.Value]
    states: TargetStates
    rows: PackedRows
    draft_rows: ir.Value
    anchor_ids: ir.Value
    anchor_positions: ir.Value
    last_tokens: ir.Value
    page_table: ir.Value
    drawn_ids: ir.Value

    @property
    def num_rows(self) -> ir.Value:
        """D as int64 [1]."""
        return self.scope.builder.dim(self.draft_rows, 0)

    @property
    def block_attention(self) -> OpSpec:
        """Attention of a block over pages, with the edge of the window that `BuildConfig.draft_window` names."""
        return ANCHOR_WINDOW_ATTENTION if self.build.draft_window == "training" else SHARED_KV_ATTENTION

    def draw(self, logits: ir.Value, token_ids: ir.Value, slot: int) -> ir.Value:
        """Target ids int32 [D] drawn for position p + slot with the noise that verification will use there.

        Args:
            logits: float32 [D, Vd].
            token_ids: int32 [Vd], target id of each column.
        """
        g = self.scope.builder
        position = g.op("Add", self.anchor_positions, g.i32(slot))
        return sample(self.scope, self.inputs, logits, token_ids, self.draft_rows, position)[0]


@dataclass(frozen=True)
class DraftOutputs:
    """What a draft pass gives.

    Attributes:
        draft_ids: int32 [D, G], proposed target ids.
        confidence: float32 [D, G], where `BuildConfig.draft_confidence` asks for it.
    """

    draft_ids: ir.Value
    confidence: ir.Value | None = None

    @property
    def values(self) -> list[ir.Value]:
        """Those that are there, in order."""
        return [self.draft_ids] if self.confidence is None else [self.draft_ids, self.confidence]


Pages = tuple[ir.Value, ...]
"""Per layer of a drafter's own cache, the pages with this step's K and V."""


class Drafter(Protocol):
    """What a drafter's module provides. An object serves one graph: `begin` is called first, then `draft`."""

    def begin(self, step: DraftContext) -> Pages:
        """Record what a step does whether it drafts or not: keep the drafter's cache complete."""

    def draft(self, step: DraftContext) -> DraftOutputs:
        """Record the draft pass, which does not run in a step without draft rows."""


def no_drafts(step: DraftContext) -> DraftOutputs:
    """Drafts of -1, and no confidence in them."""
    g = step.scope.builder
    shape = g.shape(step.num_rows, step.num_drafts)
    confidence = g.op("Expand", g.f32(0.0), shape) if step.build.draft_confidence else None
    return DraftOutputs(g.op("Expand", g.i32(NO_TOKEN), shape), confidence)


def draft_context(
    s: Scope,
    target: TargetConfig,
    build: BuildConfig,
    num_drafts: int,
    inputs: Mapping[str, ir.Value],
    states: TargetStates,
    rows: PackedRows,
    verdict: Verdict,
) -> DraftContext:
    """Gather what belongs to the rows that are drafted for."""
    g, chosen = s.builder, inputs["draft_rows"]
    last_tokens = g.op("Gather", verdict.last_tokens, chosen)
    position = g.op("Add", g.op("Gather", rows.token_positions, last_tokens), g.i32(1))
    return DraftContext(
        scope=s,
        target=target,
        build=build,
        num_drafts=num_drafts,
        inputs=inputs,
        states=states,
        rows=rows,
        draft_rows=chosen,
        anchor_ids=g.op("Gather", verdict.bonus_ids, chosen),
        anchor_positions=position,
        last_tokens=last_tokens,
        page_table=g.op("Gather", inputs["page_table"], chosen),
        drawn_ids=verdict.drawn_ids,
    )
