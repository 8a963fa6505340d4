# SPDX-License-Identifier: Apache-2.0
"""The teacher against the golden targets: states, keys and values of every stored layer, and the last logits."""

from __future__ import annotations

import pytest
import torch

from hspec_trt.checkpoint.target import load_target
from hspec_trt.modeling.load import target_model
from tests.support.golden import GOLDEN, vectors

CASES = ("hspec_qwen3", "hspec_llama", "hspec_fullattn", "dflash_qwen3", "dspark_llama_rnn")
TOLERANCE = 2e-4


@pytest.mark.parametrize("case", CASES)
def test_states_of_packed_prompts(case: str) -> None:
    """All prompts in one pack: none sees another."""
    model = target_model(load_target(GOLDEN / case / "target"))
    given = vectors(case)
    prompts = [given[f"p{i}.prompt_ids"] for i in range(3)]
    stored = {name.split(".", 1)[1] for name in given if ".target." in name}
    hidden = sorted(int(name.split(".")[2]) for name in stored if name.startswith("target.hidden."))
    layers = sorted(int(name.split(".")[2]) for name in stored if name.startswith("target.k."))
    with torch.inference_mode():
        states = model.prefill(prompts, hidden_layers=hidden, kv_layers=layers)
    start = 0
    for index, prompt in enumerate(prompts):
        rows = slice(start, start + len(prompt))
        for layer in hidden:
            wanted = given[f"p{index}.target.hidden.{layer}"]
            torch.testing.assert_close(states.hidden[layer][rows], wanted, atol=TOLERANCE, rtol=0)
        for layer in layers:
            for name, found in (("k", states.keys[layer]), ("v", states.values[layer])):
                wanted = given[f"p{index}.target.{name}.{layer}"].transpose(0, 1)
                torch.testing.assert_close(found[rows], wanted, atol=TOLERANCE, rtol=0)
        logits = model.logits(states.final[rows.stop - 1])
        torch.testing.assert_close(logits, given[f"p{index}.target.last_logits"], atol=TOLERANCE, rtol=0)
        start = rows.stop
