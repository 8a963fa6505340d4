# SPDX-License-Identifier: Apache-2.0
"""What block drafters share at their two ends: the block's embeddings, the head, and the Markov loop."""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.dtypes import FLOAT32
from hspec_trt.graph.drafters.frame import DraftContext
from hspec_trt.graph.layers import Scope, linear
from hspec_trt.graph.target import EMBEDDING, head_weight
from hspec_trt.graph.weights import MASK_ROW

OWN_EMBEDDING = "drafter.embed_tokens.weight"
MASK_VECTOR = "drafter.mask_embedding"
OWN_HEAD = "drafter.lm_head.weight"
TOKEN_IDS = "drafter.token_ids"
MARKOV_IN = "drafter.markov_head.markov_w1.weight"
MARKOV_OUT = "drafter.markov_head.markov_w2"


def block_embeddings(step: DraftContext, config: DrafterConfig, block: int) -> ir.Value:
    """The anchor and block - 1 mask slots, embedded: [D, block, H].

    A checkpoint's vector for the mask slots is no row of its table: an anchor that is the mask token has that row.
    """
    s = step.scope
    g = s.builder
    if s.has(MASK_VECTOR):
        anchor = embed_tokens(s, config, g.unsqueeze(step.anchor_ids, 1))
        vectors = g.op("Expand", s.weight(MASK_VECTOR), g.shape(step.num_rows, block - 1, config.hidden_size))
        return g.op("Concat", anchor, vectors, axis=1)
    shape = g.shape(step.num_rows, block - 1)
    masks = g.op("Expand", g.i32(config.mask_token_id), shape)
    return embed_tokens(s, config, g.op("Concat", g.unsqueeze(step.anchor_ids, 1), masks, axis=1))


def embed_tokens(s: Scope, config: DrafterConfig, ids: ir.Value) -> ir.Value:
    """Embeddings [..., H] of int32 token ids, mask tokens among them."""
    g = s.builder
    embedded = g.op("Gather", s.weight(OWN_EMBEDDING if s.has(OWN_EMBEDDING) else EMBEDDING), ids)
    if s.has(MASK_ROW):
        is_mask = g.unsqueeze(g.op("Equal", ids, g.i32(config.mask_token_id)), -1)
        embedded = g.op("Where", is_mask, s.weight(MASK_ROW), embedded)
    return embedded


def draft_logits(step: DraftContext, hidden: ir.Value) -> ir.Value:
    """The drafter's head: hidden [rows, H] to float32 [rows, Vd]."""
    s = step.scope
    weight = s.weight(OWN_HEAD) if s.has(OWN_HEAD) else head_weight(s, step.target)
    return s.cast(s.builder.op("Gemm", hidden, weight, transB=1), FLOAT32)


def draft_token_ids(step: DraftContext) -> ir.Value:
    """Target id of each row of the drafter's head, int32 [Vd]."""
    s = step.scope
    if s.has(TOKEN_IDS):
        return s.weight(TOKEN_IDS)
    return s.weight("target.token_ids", rows=step.target.vocab_size)


def draw_block(step: DraftContext, logits: ir.Value, *, markov_rank: int) -> ir.Value:
    """Draw the G drafts one after the other: int32 [D, G].

    Args:
        logits: float32 [D, G, Vd], of the tokens at p + 1 .. p + G.
        markov_rank: with a rank, each slot's logits get W2 W1[previous token] (W1 is indexed by target id).
    """
    s = step.scope
    g = s.builder
    token_ids = draft_token_ids(step)
    previous, drawn, final = step.anchor_ids, [], []
    for slot in range(step.num_drafts):
        slot_logits = g.op("Gather", logits, g.i64(slot), axis=1)
        if markov_rank:
            correction = linear(s, g.op("Gather", s.weight(MARKOV_IN), previous), MARKOV_OUT)
            slot_logits = g.op("Add", slot_logits, s.cast(correction, FLOAT32))
        previous = step.draw(slot_logits, token_ids, slot + 1)
        final.append(g.unsqueeze(slot_logits, 1))
        drawn.append(g.unsqueeze(previous, 1))
    s.probe("drafter.logits_final", final)
    return g.op("Concat", *drawn, axis=1)
