# SPDX-License-Identifier: Apache-2.0
"""The straight-line graph, as TensorRT gets it, in ONNX's own evaluator, which also knows bfloat16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx.reference import ReferenceEvaluator

from hspec_trt import dtypes
from hspec_trt.config.build import BuildConfig
from hspec_trt.contract import kv_pages
from tests.support.golden_pair import GOLDEN, HSPEC_CASES, golden_vectors, hspec_pair
from tests.support.graph_engine import Feed, Row, step_inputs, write_engine
from tests.support.tolerance import ROUNDING_STEP, assert_golden, norm_error

PROMPT = "p2."
BUILD = BuildConfig(page_size=16, num_drafts=7, backend="tensorrt")


def plain_error(case: str, dtype: str) -> float:
    """Largest norm error, over the stored layers, of transformers' target in that type at the prompt's last token."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        GOLDEN / case / "target", dtype=getattr(torch, dtype), attn_implementation="eager"
    )
    vectors = golden_vectors(case)
    with torch.no_grad():
        states = model(torch.from_numpy(vectors[f"{PROMPT}prompt_ids"])[None], output_hidden_states=True).hidden_states
    return max(
        norm_error(states[layer][0, -1].float().numpy(), vectors[f"{PROMPT}target.hidden.{layer}"][-1])
        for layer in range(len(states) - 1)
        if f"{PROMPT}target.hidden.{layer}" in vectors
    )


# Filters that are off take the logarithm of 0.
@pytest.mark.filterwarnings("ignore:divide by zero encountered in log")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("case", HSPEC_CASES)
def test_golden_case(case: str, dtype: str, tmp_path: Path) -> None:
    pair, kind = hspec_pair(case), dtypes.BY_NAME[dtype]
    model = onnx.load(write_engine(tmp_path, pair, replace(BUILD, dtype=dtype), probes=True))
    vectors = golden_vectors(case)
    tokens = vectors[f"{PROMPT}prompt_ids"].tolist()
    inputs = step_inputs([Row(tokens, [3, 2, 1])], [Feed(tokens, num_verify=1, draft=True)], BUILD.page_size, {})
    pages = np.zeros((4, 2, pair.target.num_kv_heads, BUILD.page_size, pair.target.head_dim), kind.numpy)
    inputs |= {kv_pages(layer).name: pages for layer in range(pair.target.num_layers)}
    names = [output.name for output in model.graph.output]
    out = dict(zip(names, ReferenceEvaluator(model).run(None, inputs), strict=True))

    # Rule E1 twice, since target and drafter follow each other; transformers is the plain version of the target.
    allowed = 4.0 * plain_error(case, dtype) + 2.0 * ROUNDING_STEP[kind]
    compared = 0
    for name, value in out.items():
        key = PROMPT + name.removeprefix("probe.").removeprefix("drafter.")
        if name.startswith("probe.") and key in vectors:
            want = vectors[key]
            if "logits" in name:
                want = want[1:]
            got = value.reshape(want.shape)
            if dtype == "float32":
                assert_golden(got, want, name)
            else:
                error = norm_error(got, want)
                assert error <= allowed, f"{name}: differs by {error:.3g} of its norm, allowed {allowed:.3g}"
            compared += 1
    assert compared >= len(pair.drafter.block_pattern) + 2
    assert out["emitted_ids"][0, 0] == vectors[f"{PROMPT}anchor_id"][0]
    if dtype == "float32":
        assert out["draft_ids"][0].tolist() == vectors[f"{PROMPT}draft_tokens"].tolist()
