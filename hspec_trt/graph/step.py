# SPDX-License-Identifier: Apache-2.0
"""`build_step`: the whole fused step as one ONNX graph. A newcomer's first read: each line is one part of the step."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from hspec_trt import dtypes
from hspec_trt.bundle import StoredTensor
from hspec_trt.config.build import BuildConfig
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.contract import STEP_INPUTS, STEP_OUTPUTS, kv_pages, kv_pages_out
from hspec_trt.errors import BuildError
from hspec_trt.graph.drafters import draft_context, drafter_for
from hspec_trt.graph.functions import op_functions
from hspec_trt.graph.recorder import StepRecorder
from hspec_trt.graph.rows import packed_rows
from hspec_trt.graph.target import target_layers, target_logits
from hspec_trt.graph.verify import NO_TOKEN, verify


def build_step(
    target: TargetConfig,
    drafter: DrafterConfig | None,
    build: BuildConfig,
    weights: Mapping[str, StoredTensor],
    *,
    branches: bool | None = None,
    probes: bool = False,
) -> ir.Model:
    """Emit the fused step: target, verification, and the draft pass where there is a drafter.

    Args:
        drafter: None gives an engine that only verifies the drafts that a row carries; its `draft_ids` are all -1.
        build: `num_drafts` None takes the drafter's own number (0 without a drafter).
        weights: where each tensor of `hspec_trt.graph.weights.engine_weights` lies; the graph refers to them as
            external data.
        branches: allow ``If`` in function bodies; None allows it for the onnxruntime backend only.
        probes: test aid: further outputs ``probe.*`` with intermediate values.

    Returns:
        A model whose inputs and outputs are those of `hspec_trt.contract`, in its order, then the pages.

    Raises:
        BuildError: B030, an unknown kind of drafter; B031, more drafts a step than the drafter was trained for.
    """
    num_drafts = drafts_per_step(drafter, build)
    recorder = _recorder(target, build, weights, num_drafts, probes=probes)
    s, inputs = recorder.scope, recorder.inputs
    g = s.builder

    rows = packed_rows(g, inputs)
    states = target_layers(s, target, inputs, rows, build.page_size)
    logits = target_logits(s, target, g.op("Gather", states.hidden[-1], inputs["verify_rows"]))
    s.probe("target.logits", [logits])
    verdict = verify(s, inputs, rows, logits, num_drafts)
    step = draft_context(s, target, build, num_drafts, inputs, states, rows, verdict)
    if drafter is None:
        draft_ids = g.op("Expand", g.i32(NO_TOKEN), g.shape(step.num_rows, num_drafts))
    else:
        draft_ids = drafter_for(drafter).draft(step)

    results = (verdict.emitted_ids, verdict.emitted_lens, verdict.emitted_logprobs, draft_ids, verdict.finite)
    outputs = dict(zip(STEP_OUTPUTS, results, strict=True))
    outputs |= {kv_pages_out(layer): pages for layer, pages in enumerate(states.kv_pages)}
    return recorder.model(outputs, op_functions(branches=_branches(build, branches)))


def drafts_per_step(drafter: DrafterConfig | None, build: BuildConfig) -> int:
    """G of an engine.

    Raises:
        BuildError: B031, more than the drafter was trained for.
    """
    trained = 0 if drafter is None else drafter.num_drafts
    if build.num_drafts is None:
        return trained
    if drafter is not None and build.num_drafts > trained:
        raise BuildError(
            "B031",
            f"{build.num_drafts} drafts a step",
            needed=f"at most {trained}, which is what the drafter was trained for",
            where="num_drafts",
        )
    return build.num_drafts


def _branches(build: BuildConfig, wanted: bool | None) -> bool:
    return build.backend == "onnxruntime" if wanted is None else wanted


def _recorder(
    target: TargetConfig,
    build: BuildConfig,
    weights: Mapping[str, StoredTensor],
    num_drafts: int,
    *,
    probes: bool,
) -> StepRecorder:
    specs = [*STEP_INPUTS, *(kv_pages(layer) for layer in range(target.num_layers))]
    sizes = {
        "G": num_drafts,
        "G+1": num_drafts + 1,
        "kv_heads": target.num_kv_heads,
        "page_size": build.page_size,
        "head_dim": target.head_dim,
    }
    return StepRecorder(dtypes.BY_NAME[build.dtype], specs, sizes, weights, probes=probes)
