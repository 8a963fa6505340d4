# SPDX-License-Identifier: Apache-2.0
"""`build_step`: the whole fused step as one ONNX graph. A newcomer's first read: each line is one part of the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from hspec_trt import dtypes
from hspec_trt.bundle import StoredTensor
from hspec_trt.config.build import FEEDBACK, BuildConfig
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.contract import (
    DRAFT_CONFIDENCE,
    EXTENSIONS,
    MAX_TOP_LOGPROBS,
    NEXT_IDS,
    STEP_INPUTS,
    STEP_OUTPUTS,
    TensorSpec,
    kv_pages,
    kv_pages_out,
)
from hspec_trt.errors import BuildError
from hspec_trt.graph.builder import Builder
from hspec_trt.graph.drafters import DraftContext, DraftOutputs, draft_context, drafter_for, no_drafts
from hspec_trt.graph.feedback import next_step
from hspec_trt.graph.functions import op_functions
from hspec_trt.graph.logits import edits_of, top_logprobs
from hspec_trt.graph.recorder import StepRecorder
from hspec_trt.graph.rows import packed_rows
from hspec_trt.graph.target import target_layers, target_logits
from hspec_trt.graph.verify import verify


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
        A model whose inputs and outputs are those of `hspec_trt.contract`, in its order: what every engine has, what
        this one has further, the target's pages, the drafter's own.

    Raises:
        BuildError: B030, an unknown kind of drafter; B031, more drafts a step than the drafter was trained for; B034,
            confidence asked of a drafter that has none.
    """
    num_drafts = drafts_per_step(drafter, build)
    recorder = _recorder(target, drafter, build, weights, num_drafts, probes=probes)
    s, inputs = recorder.scope, recorder.inputs
    g = s.builder

    rows = packed_rows(g, inputs)
    states = target_layers(s, target, inputs, rows, build.page_size)
    logits = target_logits(s, target, g.op("Gather", states.hidden[-1], inputs["verify_rows"]))
    s.probe("target.logits", [logits])
    use_branches = build.backend == "onnxruntime" if branches is None else branches
    edit = edits_of(build.extensions or (), inputs, target.vocab_size)
    verdict = verify(s, inputs, rows, logits, num_drafts, edit, branches=use_branches)
    emitter = drafter_for(drafter)

    def context(builder: Builder) -> DraftContext:
        return draft_context(s.inside(builder), target, build, num_drafts, inputs, states, rows, verdict)

    cached = emitter.begin(context(g)) if drafter is not None and drafter.num_cache_layers else ()
    if use_branches and drafter is not None and not probes:
        drafts = _unless_empty(g, inputs["draft_rows"], lambda inner: emitter.draft(context(inner)), context)
    else:
        drafts = emitter.draft(context(g))

    results = (verdict.emitted_ids, verdict.emitted_lens, verdict.emitted_logprobs, drafts.draft_ids, verdict.finite)
    outputs = dict(zip(STEP_OUTPUTS, results, strict=True))
    if build.draft_confidence:
        outputs[DRAFT_CONFIDENCE] = _confidence(drafts)
    if "top_logprobs" in (build.extensions or ()):
        outputs |= top_logprobs(s, inputs, logits, target.vocab_size, precise=use_branches)
    if FEEDBACK in (build.extensions or ()):
        outputs |= next_step(g, inputs, verdict, drafts.draft_ids)
    outputs |= {kv_pages_out(layer): pages for layer, pages in enumerate(states.kv_pages)}
    outputs |= {kv_pages_out(layer, drafter=True): pages for layer, pages in enumerate(cached)}
    return recorder.model(outputs, op_functions(branches=use_branches))


def _unless_empty(
    g: Builder,
    draft_rows: ir.Value,
    draft: Callable[[Builder], DraftOutputs],
    context: Callable[[Builder], DraftContext],
) -> DraftOutputs:
    """The draft pass under ``If`` there is a row to draft for.

    A pass over empty tensors works too, but launching its nodes on nothing took 3 ms of a 23 ms step.
    """
    some = g.op("Greater", g.dim(draft_rows, 0), g.i64([0]))
    chosen = g.branch(g.scalar(some), lambda inner: draft(inner).values, lambda inner: no_drafts(context(inner)).values)
    return DraftOutputs(*chosen)


def _confidence(drafts: DraftOutputs) -> ir.Value:
    if drafts.confidence is None:
        raise BuildError("B034", "this drafter estimates no confidence", needed="a checkpoint with a confidence head")
    return drafts.confidence


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


def further_inputs(drafter: DrafterConfig | None) -> tuple[TensorSpec, ...]:
    """Inputs of an engine beyond `STEP_INPUTS` and the pages."""
    return (NEXT_IDS,) if drafter is not None and drafter.needs_next_ids else ()


def _recorder(
    target: TargetConfig,
    drafter: DrafterConfig | None,
    build: BuildConfig,
    weights: Mapping[str, StoredTensor],
    num_drafts: int,
    *,
    probes: bool,
) -> StepRecorder:
    extensions = (spec for name in build.extensions or () for spec in EXTENSIONS[name].inputs)
    specs = [*STEP_INPUTS, *further_inputs(drafter), *extensions]
    specs += [kv_pages(layer) for layer in range(target.num_layers)]
    sizes = {
        "G": num_drafts,
        "G+1": num_drafts + 1,
        "kv_heads": target.num_kv_heads,
        "page_size": build.page_size,
        "head_dim": target.head_dim,
        "V": target.vocab_size,
        "C": min(MAX_TOP_LOGPROBS, target.vocab_size),
    }
    if drafter is not None:
        specs += [kv_pages(layer, drafter=True) for layer in range(drafter.num_cache_layers)]
        sizes |= {"draft_kv_heads": drafter.num_kv_heads, "draft_head_dim": drafter.head_dim}
    return StepRecorder(dtypes.BY_NAME[build.dtype], specs, sizes, weights, probes=probes)
