# SPDX-License-Identifier: Apache-2.0
"""Tiny targets of `tests.support.tiny_models` as pairs, opened through the checkpoint loader."""

from __future__ import annotations

from pathlib import Path

from hspec_trt.checkpoint.target import load_target
from tests.support.graph_engine import Pair
from tests.support.tiny_models import TinyTarget, Weights, write_target


def tiny_pair(folder: Path, target: TinyTarget, weights: Weights | None = None) -> Pair:
    """The target alone, without a drafter."""
    checkpoint = load_target(write_target(folder, target, weights, tokenizer=False))
    return Pair(checkpoint.config, checkpoint.tensors)
