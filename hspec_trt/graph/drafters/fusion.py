# SPDX-License-Identifier: Apache-2.0
"""Fused target states, and their norm.

Where the engine is float16, ``fc`` and what it gives are float32 up to the first norm: outlier channels of the target
make the result larger than float16 can hold, and only the norm brings it back into range.
"""

from __future__ import annotations

import onnx_ir as ir

from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.dtypes import DType
from hspec_trt.graph.drafters.frame import DraftContext
from hspec_trt.graph.layers import Scope, linear, rms_norm, rms_norm_float32

FC = "drafter.fc"


def raw_states(step: DraftContext, config: DrafterConfig) -> list[ir.Value]:
    """``h^(L)`` [N, H] of each fused layer, in the order of concatenation."""
    return [step.states.hidden[layer] for layer in config.fused_layers]


def fused_dtype(s: Scope) -> DType:
    """Type of fused states: float32 in a float16 engine, else the engine's."""
    return s.stored[f"{FC}.weight"].dtype


def fuse(s: Scope, states: ir.Value) -> ir.Value:
    """``fc`` of concatenated states [rows, F * H] of the engine's type: [rows, H] of `fused_dtype`."""
    return linear(s, widened(s, states), FC)


def widened(s: Scope, x: ir.Value) -> ir.Value:
    """A value of the engine's type in `fused_dtype`."""
    dtype = fused_dtype(s)
    return x if dtype is s.dtype else s.cast(x, dtype)


def fused_norm(s: Scope, x: ir.Value, weight: str, eps: float) -> ir.Value:
    """Norm of a value of `fused_dtype`; the result is of the engine's type."""
    norm = rms_norm if fused_dtype(s) is s.dtype else rms_norm_float32
    return norm(s, x, weight, eps)
