# SPDX-License-Identifier: Apache-2.0
"""A built engine says what transformers says in float32: from the checkpoint on disk to the last position it may reach.

Each engine writes a long text at a high temperature, so that common and rare tokens are drawn; the log-probability of
every one of them must be that of transformers' logits over the same text, which one wrong logit anywhere would move.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from hspec_trt import LLM, RuntimeOptions, SamplingParams
from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from tests.support.partial_rotary import rotated_in_part
from tests.support.tiny_gguf import write_gguf
from tests.support.tiny_models import ROPES, TinyTarget, Weights, random_weights, write_target

RELATIVE = 1e-4
"""Of the largest logit: what the issue asks of target logits in float32."""
BUILD = BuildConfig(max_batch_size=2, max_num_tokens=64, page_size=16)
PROMPT = [1, 40, 7]
ROPE_LENGTH = 64
"""Positions at which `ROPES` were trained; the texts run on to 256."""


@dataclass(frozen=True)
class Text:
    """What an engine said, and how likely it found each token."""

    ids: list[int]
    logprobs: np.ndarray

    @property
    def whole(self) -> list[int]:
        return [*PROMPT, *self.ids]


def engine_text(target: Path, folder: Path, *, count: int | None = None) -> Text:
    build(target, None, folder / "engine", BUILD)
    params = SamplingParams(temperature=2.0, seed=11, ignore_eos=True, drafts="off", max_tokens=count)
    with LLM(folder / "engine", RuntimeOptions(num_threads=1, kv_cache_memory=1 << 22)) as llm:
        answer = llm.generate(PROMPT, params).outputs[0]
    return Text(answer.token_ids, np.array(answer.logprobs))


def reference_logits(folder: Path, ids: list[int]) -> np.ndarray:
    """transformers' logits [positions, V] over a text, computed in float32 from what the folder stores."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits: np.ndarray = model(torch.tensor([ids])).logits[0].double().numpy()
    return logits


def check(text: Text, logits: np.ndarray, vocab_size: int = 61) -> None:
    """Every token of the text against the logits after the tokens before it."""
    logits = logits[len(PROMPT) - 1 : len(text.whole) - 1, :vocab_size]
    shifted = logits - logits.max(axis=1, keepdims=True)
    normalizer = np.log(np.exp(shifted).sum(axis=1))
    want = shifted[np.arange(len(text.ids)), text.ids] - normalizer
    allowed = RELATIVE * np.abs(logits).max(axis=1)
    worst = int(np.argmax(np.abs(text.logprobs - want) / allowed))
    got = f"{text.logprobs[worst]:.6f} at position {len(PROMPT) + worst}, transformers {want[worst]:.6f}"
    assert abs(text.logprobs[worst] - want[worst]) <= allowed[worst], got
    assert len(set(text.ids)) > 30, "too few kinds of tokens for the test to say anything"


LLAMA, QWEN3 = TinyTarget(std=0.12), TinyTarget(family="qwen3", std=0.12)


def variant(family: TinyTarget, **changes: object) -> TinyTarget:
    return TinyTarget(**(vars(family) | changes))  # type: ignore[arg-type]


TARGETS = {
    **{f"llama {kind}": variant(LLAMA, rope=rope) for kind, rope in ROPES.items()},
    **{f"llama {kind} tied": variant(LLAMA, rope=rope, tied=True) for kind, rope in ROPES.items()},
    **{f"qwen3 {kind}": variant(QWEN3, rope=rope) for kind, rope in ROPES.items()},
    **{f"qwen3 {kind} tied": variant(QWEN3, rope=rope, tied=True) for kind, rope in ROPES.items()},
    "old spelling": variant(LLAMA, rope=ROPES["llama3"], old_rope_spelling=True),
    "yarn options": variant(LLAMA, rope=ROPES["yarn"] | {"beta_fast": 16.0, "mscale": 0.7, "mscale_all_dim": 1.3}),
    "attention bias": variant(LLAMA, attention_bias=True),
    "mlp bias": variant(LLAMA, mlp_bias=True),
    "qwen3 attention bias": variant(QWEN3, attention_bias=True),
    "windows from layer 2": variant(QWEN3, window=8, first_window_layer=2),
    "window of a page": variant(QWEN3, window=16),
    "a query head each": variant(LLAMA, num_kv_heads=4),
    "narrow heads": variant(QWEN3, head_dim=8, rms_norm_eps=1e-2),
}


@pytest.mark.parametrize("name", TARGETS)
def test_every_kind_of_target(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    assert target.max_position >= 2 * ROPE_LENGTH
    folder = write_target(tmp_path / "target", target)
    text = engine_text(folder, tmp_path)
    assert len(text.whole) == target.max_position
    check(text, reference_logits(folder, text.whole))


@pytest.mark.parametrize("kind", ROPES)
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_part_of_the_channels_rotated(kind: str, share: float, tmp_path: Path) -> None:
    folder = write_target(tmp_path / "target", variant(LLAMA, rope=ROPES[kind] | {"partial_rotary_factor": share}))
    text = engine_text(folder, tmp_path)
    with rotated_in_part():
        check(text, reference_logits(folder, text.whole))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_checkpoint_on_a_cpu(dtype: str, tmp_path: Path) -> None:
    """Case G7: the engine is float32 and computes with the stored values exactly."""
    folder = write_target(tmp_path / "target", variant(LLAMA, dtype=dtype))
    text = engine_text(folder, tmp_path)
    check(text, reference_logits(folder, text.whole))


def test_gguf_in_the_row_order_of_llama_cpp(tmp_path: Path) -> None:
    target = variant(LLAMA, rope=ROPES["linear"])
    weights = random_weights(target)
    folder = write_target(tmp_path / "target", target, weights)
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    text = engine_text(write_gguf(tmp_path / "target.gguf", target, weights, extra=scaling), tmp_path)
    check(text, reference_logits(folder, text.whole))


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "target", LLAMA, num_shards=3)
    text = engine_text(folder, tmp_path, count=100)
    check(text, reference_logits(folder, text.whole))


def head_of(weights: Weights, scale: float) -> Weights:
    return weights | {"lm_head.weight": weights["model.embed_tokens.weight"] * np.float32(scale)}


def test_tied_absent_tied_stored_and_untied_differ_only_as_they_should(tmp_path: Path) -> None:
    """Case A10: absent and equal heads are the embedding; a head of its own is used where nothing is tied."""
    tied, own = variant(LLAMA, tied=True), variant(LLAMA, tied=False)
    weights = random_weights(tied)
    made = {
        "absent": (tied, weights),
        "stored": (tied, head_of(weights, 1.0)),
        "its own": (own, head_of(weights, 0.5)),
    }
    texts = {}
    for name, (target, tensors) in made.items():
        folder = write_target(tmp_path / name / "target", target, tensors)
        texts[name] = engine_text(folder, tmp_path / name, count=120)
        check(texts[name], reference_logits(folder, texts[name].whole))
    assert texts["absent"].ids == texts["stored"].ids
    np.testing.assert_array_equal(texts["absent"].logprobs, texts["stored"].logprobs)
    assert texts["its own"].ids != texts["absent"].ids


@pytest.mark.parametrize("tied", [False, True])
def test_rows_beyond_the_vocabulary_are_never_drawn(tied: bool, tmp_path: Path) -> None:
    """Case A16: three rows of padding that would win every draw, 10 000 draws at temperature 2."""
    target = variant(LLAMA, embedding_rows=64, tied=tied)
    weights = random_weights(target)
    table = weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
    table[61:] = 100.0 * np.sign(table[61:])
    folder = write_target(tmp_path / "target", target, weights)
    build(folder, None, tmp_path / "engine", BuildConfig(max_batch_size=64, max_num_tokens=512, page_size=16))
    params = [SamplingParams(temperature=2.0, seed=seed, max_tokens=250, ignore_eos=True) for seed in range(40)]
    with LLM(tmp_path / "engine", RuntimeOptions(num_threads=1, kv_cache_memory=1 << 26)) as llm:
        answers = [output.outputs[0] for output in llm.generate([PROMPT] * len(params), params)]
    drawn = [token for answer in answers for token in answer.token_ids]
    assert len(drawn) == 10_000
    assert max(drawn) < 61
    assert len(set(drawn)) > 50
    first = Text(answers[0].token_ids, np.array(answers[0].logprobs))
    check(first, reference_logits_without_padding(folder, first.whole))


def reference_logits_without_padding(folder: Path, ids: list[int]) -> np.ndarray:
    """transformers is told of 64 tokens, since it would refuse the table; the columns of the padding are cut off."""
    config = transformers.AutoConfig.from_pretrained(folder, vocab_size=64)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32)
    with torch.no_grad():
        logits: np.ndarray = model(torch.tensor([ids])).logits[0].double().numpy()
    return logits[:, :61]
