# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct, real weights: 24 prompts x 96 new tokens of greedy text are those of transformers.

transformers is given the engine's text and must choose every token of it by itself: as long as it does, its own greedy
text is that text. Where it would choose another token the two logits must lie within `NEAR_TIE` of each other; each
such place is named, and the comparison goes on along the engine's text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hspec_trt import LLM, RuntimeOptions, SamplingParams
from hspec_trt.checkpoint.target import TargetCheckpoint, load_target
from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from tests.support.smollm2 import smollm2_gguf

PROMPTS = Path(__file__).parents[2] / "benchmarks" / "prompts.jsonl"
NUM_TOKENS = 96
NEAR_TIE = 1e-3
"""Logits are of magnitude 10 to 30: 1e-4 of that, which is the bound of target logits, is 1e-3 to 3e-3."""
RELATIVE = 1e-4


def transformers_model(target: TargetCheckpoint) -> LlamaForCausalLM:
    """transformers' Llama with the tensors that our loader reads."""
    config = target.config
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.embedding_rows,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            rms_norm_eps=config.rms_norm_eps,
            rope_parameters={"rope_type": config.rope.rope_type, "rope_theta": config.rope.theta},
            max_position_embeddings=config.max_position,
            tie_word_embeddings=config.tie_word_embeddings,
        )
    ).eval()
    state = {name: torch.from_numpy(source.read().astype(np.float32)) for name, source in target.tensors.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model


@dataclass(frozen=True)
class Answer:
    """Prompt, and what the engine said and how likely it found it."""

    name: str
    prompt: list[int]
    ids: list[int]
    logprobs: list[float]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """The engine's greedy texts, all prompts in one batch."""
    engine = tmp_path_factory.mktemp("smollm2") / "engine"
    build(smollm2_gguf(), None, engine, BuildConfig(max_batch_size=24, max_num_tokens=512, max_seq_len=1024))
    rows = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True, drafts="off")
    with LLM(engine, RuntimeOptions(num_threads=1, kv_cache_memory=1 << 29)) as llm:
        prompts = [llm.chat_ids(row["messages"]) for row in rows]
        outputs = [output.outputs[0] for output in llm.generate(prompts, params)]
    return [
        Answer(row["id"], prompt, output.token_ids, output.logprobs)
        for row, prompt, output in zip(rows, prompts, outputs, strict=True)
    ]


@pytest.fixture(scope="module")
def reference() -> Callable[[Answer], np.ndarray]:
    """`reference(answer)`: transformers' logits after the prompt and after each new token but the last, [96, V]."""
    model = transformers_model(load_target(smollm2_gguf()))

    @torch.inference_mode()
    def logits(answer: Answer) -> np.ndarray:
        ids = torch.tensor([[*answer.prompt, *answer.ids[:-1]]])
        return model(ids, logits_to_keep=len(answer.ids)).logits[0].double().numpy()

    return logits


@pytest.mark.slow
def test_greedy_text_is_that_of_transformers(
    answers: list[Answer], reference: Callable[[Answer], np.ndarray], record_property: Callable[[str, object], None]
) -> None:
    assert len(answers) == 24
    near_ties, worst = [], 0.0
    for answer in answers:
        assert len(answer.ids) == NUM_TOKENS
        logits = reference(answer)
        for step in np.flatnonzero(logits.argmax(axis=1) != answer.ids).tolist():
            ours, theirs = answer.ids[step], int(logits[step].argmax())
            pair = f"token {ours} logit {logits[step, ours]:.5f}, token {theirs} logit {logits[step, theirs]:.5f}"
            near_ties.append(f"{answer.name}, new token {step}: {pair}")
            assert logits[step, theirs] - logits[step, ours] <= NEAR_TIE, near_ties[-1]
        shifted = logits - logits.max(axis=1, keepdims=True)
        want = shifted[np.arange(NUM_TOKENS), answer.ids] - np.log(np.exp(shifted).sum(axis=1))
        scaled = np.abs(np.array(answer.logprobs) - want) / np.abs(logits).max(axis=1)
        worst = max(worst, float(scaled.max()))
    record_property("near ties", near_ties)
    record_property("largest difference of a log-probability, relative to the largest logit", worst)
    print(f"{len(near_ties)} near ties: {near_ties}; log-probabilities differ by at most {worst:.1e} of a logit")
    assert worst <= RELATIVE
    assert len(near_ties) <= len(answers) * NUM_TOKENS // 100
