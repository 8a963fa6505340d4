# SPDX-License-Identifier: Apache-2.0
"""DSpark: DFlash's backbone, then a serial loop that corrects each slot's logits by the token before it."""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.config.drafters_block import DSparkConfig
from hspec_trt.dtypes import FLOAT32
from hspec_trt.graph.drafters.dflash import BlockPass, append_context
from hspec_trt.graph.drafters.frame import DraftContext, DraftOutputs, Pages
from hspec_trt.graph.drafters.heads import MARKOV_IN, MARKOV_OUT, draft_token_ids
from hspec_trt.graph.layers import linear

GATE = "drafter.markov_head.gate_proj"
JOINT = "drafter.markov_head.joint_proj"
CONFIDENCE = "drafter.confidence_head.proj"


class DSpark:
    """Emits the draft pass of one DSpark configuration."""

    def __init__(self, config: DSparkConfig) -> None:
        self.config = config
        self.pages: Pages = ()

    def begin(self, step: DraftContext) -> Pages:
        """Project this step's target states to K and V of every draft layer."""
        self.pages = append_context(self.config, step)
        return self.pages

    def draft(self, step: DraftContext) -> DraftOutputs:
        """Record the draft pass."""
        block = BlockPass(self.config, step, self.pages)
        hidden = block.hidden()
        heads = _Heads(self.config, step, block, hidden)
        draft_ids = heads.drafts(block.logits(hidden))
        wanted = self.config.confidence_head and step.build.draft_confidence
        return DraftOutputs(draft_ids, heads.confidence() if wanted else None)


class _Heads:
    """The serial loop of one step.

    Args:
        hidden: final hidden states [D * B, H].
    """

    def __init__(self, config: DSparkConfig, step: DraftContext, block: BlockPass, hidden: ir.Value) -> None:
        self.config, self.step, self.s, self.g = config, step, step.scope, step.scope.builder
        self.all_slots = block.slots(hidden)
        self.proposing = block.proposing(hidden)
        self.state = self._initial_state()
        self.previous: list[ir.Value] = []

    def drafts(self, logits: ir.Value) -> ir.Value:
        """Draw the G drafts one after the other: int32 [D, G] from float32 [D, G, Vd]."""
        g, s, config = self.g, self.s, self.config
        token_ids = draft_token_ids(self.step)
        token, drawn, final = self.step.anchor_ids, [], []
        if config.markov_rank and config.markov_type == "rnn" and config.first_slot:
            self._bias(token, self._slot(self.all_slots, 0))  # in training the state passes through the anchor's slot
        for slot in range(self.step.num_drafts):
            slot_logits = self._slot(logits, slot)
            if config.markov_rank:
                bias = self._bias(token, self._slot(self.proposing, slot))
                slot_logits = g.op("Add", slot_logits, s.cast(bias, FLOAT32))
            self.previous.append(token)
            token = self.step.draw(slot_logits, token_ids, slot + 1)
            final.append(g.unsqueeze(slot_logits, 1))
            drawn.append(g.unsqueeze(token, 1))
        s.probe("drafter.logits_final", final)
        return g.op("Concat", *drawn, axis=1)

    def confidence(self) -> ir.Value:
        """Chance float32 [D, G] that each draft is accepted if those before it are."""
        g, s, config, num_drafts = self.g, self.s, self.config, self.step.num_drafts
        features = self.proposing
        if config.confidence_with_markov:
            previous = g.op("Concat", *(g.unsqueeze(token, 1) for token in self.previous), axis=1)
            features = g.op("Concat", features, g.op("Gather", s.weight(MARKOV_IN), previous), axis=2)
        lines = g.op("Mul", self.step.num_rows, g.i64([num_drafts]))
        logits = linear(s, g.reshape(features, lines, config.confidence_width), CONFIDENCE)
        logits = g.reshape(s.cast(logits, FLOAT32), self.step.num_rows, num_drafts)
        s.probe("drafter.confidence_logits", [logits])
        return g.op("Sigmoid", logits)

    def _initial_state(self) -> ir.Value:
        """Zeros [D, rank] in the engine's type."""
        zeros = self.g.op("Expand", self.g.f32(0.0), self.g.shape(self.step.num_rows, max(self.config.markov_rank, 1)))
        return self.s.cast(zeros, self.s.dtype)

    def _slot(self, x: ir.Value, slot: int) -> ir.Value:
        return self.g.op("Gather", x, self.g.i64(slot), axis=1)

    def _bias(self, token: ir.Value, hidden: ir.Value) -> ir.Value:
        """Correction [D, Vd] of one slot, from the token before it and the slot's hidden state [D, H]."""
        g, s, config = self.g, self.s, self.config
        embedded = g.op("Gather", s.weight(MARKOV_IN), token)
        if config.markov_type == "gated":
            gate = linear(s, g.op("Concat", hidden, embedded, axis=1), GATE)
            embedded = g.op("Mul", embedded, g.op("Sigmoid", gate))
        elif config.markov_type == "rnn":
            embedded = self._recur(embedded, hidden)
        return linear(s, embedded, MARKOV_OUT)

    def _recur(self, embedded: ir.Value, hidden: ir.Value) -> ir.Value:
        """Advance the state by one slot; returns what the head reads."""
        g, rank = self.g, self.config.markov_rank
        joint = linear(self.s, g.op("Concat", self.state, embedded, hidden, axis=1), JOINT)
        gate, candidate, out = (g.slice(joint, part * rank, (part + 1) * rank, 1) for part in range(3))
        gate = g.op("Sigmoid", gate)
        # gate * state + (1 - gate) * candidate
        candidate = g.op("Tanh", candidate)
        self.state = g.op("Add", candidate, g.op("Mul", gate, g.op("Sub", self.state, candidate)))
        return g.op("Tanh", out)
