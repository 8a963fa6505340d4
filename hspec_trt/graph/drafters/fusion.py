# SPDX-License-Identifier: Apache-2.0
"""Fused target states of all packed tokens, for drafters that keep a cache of their own."""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.graph.drafters.frame import DraftContext
from hspec_trt.graph.layers import Scope, linear

FC = "drafter.fc"


def raw_states(step: DraftContext, config: DrafterConfig) -> list[ir.Value]:
    """``h^(L)`` [N, H] of each fused layer, in the order of concatenation."""
    return [step.states.hidden[layer] for layer in config.fused_layers]


def fuse(s: Scope, states: ir.Value) -> ir.Value:
    """``fc`` of concatenated states [rows, F * H]: [rows, H].

    In float32 where the engine is float16: outlier channels of the target overflow it.
    """
    stored = s.stored[f"{FC}.weight"].dtype
    if stored is s.dtype:
        return linear(s, states, FC)
    wide = linear(s, s.builder.cast(states, ir.DataType(stored.onnx)), FC)
    return s.builder.op("CastLike", wide, states)
