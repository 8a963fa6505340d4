# SPDX-License-Identifier: Apache-2.0
"""What the next step needs of this one, computed in the graph: the outputs of the extension ``feedback``.

A session that binds them as the next step's inputs need not wait for the host to read what was emitted.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from hspec_trt.contract import EXTENSIONS, TensorSpec
from hspec_trt.graph.builder import Builder
from hspec_trt.graph.verify import Verdict


def next_step(
    g: Builder, inputs: Mapping[str, ir.Value], verdict: Verdict, draft_ids: ir.Value
) -> dict[TensorSpec, ir.Value]:
    """The outputs of the extension.

    Args:
        draft_ids: int32 [D, G].
    """
    bonus = g.op("Gather", verdict.bonus_ids, inputs["draft_rows"])
    ids = g.op("Concat", g.unsqueeze(bonus, 1), draft_ids, axis=1)
    unverified = g.op("Sub", _lens(g, inputs["cu_query_lens"]), _lens(g, inputs["cu_verify_lens"]))
    run = g.op("Add", unverified, verdict.emitted_lens)
    values = (ids, g.op("Add", inputs["context_lens"], run))
    return dict(zip(EXTENSIONS["feedback"].outputs, values, strict=True))


def _lens(g: Builder, cu_lens: ir.Value) -> ir.Value:
    """int32 [R]: length of each row."""
    ends = g.op("Slice", cu_lens, g.i64([1]), g.i64([2**31 - 1]), g.i64([0]))
    return g.op("Sub", ends, g.op("Slice", cu_lens, g.i64([0]), g.i64([-1]), g.i64([0])))
