# SPDX-License-Identifier: Apache-2.0
"""Folders of the tiny models against transformers: it opens them with all weights used, and agrees on the rope."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from hspec_trt.checkpoint.target import load_target
from tests.support.tiny_models import ROPES, TinyTarget, write_target

YARNS: dict[str, dict[str, Any]] = {
    "yarn-attention-factor": {"attention_factor": 1.5, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn-mscale": {"mscale": 0.7, "mscale_all_dim": 1.3},
    "yarn-untruncated": {"truncate": False, "factor": 40.0},
}
CASES = ROPES | {name: ROPES["yarn"] | extra for name, extra in YARNS.items()}
LLAMA31 = ROPES["llama3"] | {"original_max_position_embeddings": 8192}


@pytest.mark.parametrize("head_dim", [16, 64, 128])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("kind", [*CASES, "llama-3.1"])
def test_inverse_frequencies(tmp_path: Path, kind: str, family: str, head_dim: int) -> None:
    rope = CASES.get(kind, LLAMA31)
    target = TinyTarget(family=family, rope=rope, head_dim=head_dim, max_position=16384, num_layers=1)
    ours = load_target(write_target(tmp_path, target)).config
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    if rope["rope_type"] == "default":
        model = transformers.AutoModelForCausalLM.from_config(theirs)
        expected, scaling = model.model.rotary_emb.inv_freq, model.model.rotary_emb.attention_scaling
    else:
        expected, scaling = ROPE_INIT_FUNCTIONS[rope["rope_type"]](theirs)
    found = ours.rope.inverse_frequencies(head_dim)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6, atol=0)
    assert ours.rope.attention_scaling == pytest.approx(scaling, rel=1e-12)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_transformers_opens_what_is_written(tmp_path: Path, family: str, tied: bool) -> None:
    target = TinyTarget(family=family, tied=tied, attention_bias=True, window=8 if family == "qwen3" else 0)
    opened = load_target(write_target(tmp_path, target, num_shards=2))
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    state = model.state_dict()
    for name, source in opened.tensors.items():
        np.testing.assert_array_equal(source.read(), state[name].numpy())
    if family == "qwen3":
        windows = [8 if kind == "sliding_attention" else 0 for kind in model.config.layer_types]
        assert [opened.config.window(layer) for layer in range(4)] == windows


@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_inverse_frequencies_of_a_part_of_the_channels(tmp_path: Path, kind: str, share: float) -> None:
    target = TinyTarget(rope=ROPES[kind] | {"partial_rotary_factor": share}, head_dim=64, num_layers=1)
    ours = load_target(write_target(tmp_path, target)).config.rope
    expected, _ = ROPE_INIT_FUNCTIONS[kind](transformers.AutoConfig.from_pretrained(tmp_path))
    found = ours.inverse_frequencies(64)
    assert found.shape == (int(32 * share),)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6, atol=0)
