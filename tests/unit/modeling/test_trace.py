# SPDX-License-Identifier: Apache-2.0
"""Whole speculative decodes in PyTorch against the golden traces: rows, counts and tokens exact."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch

from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.checkpoint.target import load_target
from hspec_trt.modeling.block import BlockInputs, Drafts
from hspec_trt.modeling.hspec import HSpecModel
from hspec_trt.modeling.load import drafter_model, target_model
from hspec_trt.modeling.target import TargetModel, TargetStates
from tests.support.golden import GOLDEN, vectors


@dataclass
class _Decoder:
    """Greedy speculation without a cache: the target runs the whole text again in every step."""

    target: TargetModel
    drafter: HSpecModel
    text: list[int]

    def run(self, tokens: list[int]) -> TargetStates:
        config = self.drafter.config
        with torch.inference_mode():
            return self.target.prefill(
                [torch.tensor(tokens)], hidden_layers=config.fused_layers, kv_layers=config.attn_kv_layers
            )

    def draft(self) -> Drafts:
        """Drafts after the text, whose last token is the anchor."""
        config, states, position = self.drafter.config, self.run(self.text[:-1]), len(self.text) - 1
        fused = torch.cat([states.hidden[layer][-1] for layer in config.fused_layers])
        return self.drafter.draft(
            BlockInputs(
                torch.tensor([[self.text[-1]]]),
                torch.tensor([[position]]),
                fused[None, None],
                {layer: states.keys[layer][None] for layer in config.attn_kv_layers},
                {layer: states.values[layer][None] for layer in config.attn_kv_layers},
            )
        )

    def choices(self, drafts: list[int]) -> list[int]:
        """The target's choice after the anchor and after each draft."""
        final = self.run(self.text + drafts).final[len(self.text) - 1 :]
        return self.target.logits(final).argmax(-1).tolist()


@pytest.mark.parametrize(("case", "number"), [("hspec_qwen3", 0), ("hspec_qwen3", 1), ("hspec_llama", 0)])
def test_trace(case: str, number: int) -> None:
    trace = json.loads((GOLDEN / case / "trace.json").read_text())[number]
    checkpoint = load_target(GOLDEN / case / "target")
    drafter = drafter_model(load_drafter(GOLDEN / case / "drafter", checkpoint), checkpoint)
    assert isinstance(drafter, HSpecModel)
    prompt = vectors(case)[f"p{trace['prompt']}.prompt_ids"].tolist()
    decoder = _Decoder(target_model(checkpoint), drafter, prompt + trace["speculative"][:1])
    for step in trace["steps"]:
        assert step["anchor_pos"] == len(decoder.text) - 1
        drafts = decoder.draft()
        row = drafts.target_ids.flatten().tolist()
        assert [decoder.text[-1], *row] == step["verify_row"]
        confidence = drafts.confidence
        assert confidence is not None
        wanted = torch.tensor(step["confidence_logits"][1:])
        torch.testing.assert_close(confidence.flatten(), wanted, atol=2e-4, rtol=0)
        choices = decoder.choices(row)
        assert choices == step["target_argmax"]
        accepted = next((place for place, token in enumerate(row) if token != choices[place]), len(row))
        assert accepted == step["accepted"]
        assert choices[: accepted + 1] == step["emitted"]
        decoder.text += choices[: accepted + 1]
    assert decoder.text[len(prompt) :][: trace["new_tokens"]] == trace["plain_greedy"]
