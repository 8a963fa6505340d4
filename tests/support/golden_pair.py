# SPDX-License-Identifier: Apache-2.0
"""The golden cases of H-Spec, opened as a user's checkpoints are."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.checkpoint.target import load_target
from tests.support.graph_engine import Pair

GOLDEN = Path(__file__).parents[1] / "golden"
HSPEC_CASES = ("hspec_qwen3", "hspec_llama", "hspec_noseed", "hspec_nokv", "hspec_fullattn")


@cache
def hspec_pair(case: str) -> Pair:
    target = load_target(GOLDEN / case / "target")
    drafter = load_drafter(GOLDEN / case / "drafter", target)
    return Pair(target.config, target.tensors, drafter.config, drafter.tensors)


@cache
def golden_vectors(case: str) -> dict[str, np.ndarray]:
    return load_file(GOLDEN / case / "vectors.safetensors")


def golden_trace(case: str) -> list[dict]:
    return json.loads((GOLDEN / case / "trace.json").read_text())
