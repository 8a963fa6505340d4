# SPDX-License-Identifier: Apache-2.0
"""Losslessness on real weights: SmolLM2-135M with the drafter that the repository ships, built as a user builds it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hspec_trt import LLM, RuntimeOptions, SamplingParams
from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from hspec_trt.runtime.losslessness import verify
from tests.support.smollm2 import smollm2_gguf

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROMPTS = ROOT / "benchmarks" / "prompts.jsonl"
NUM_PROMPTS = 3
NUM_TOKENS = 40


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    output = tmp_path_factory.mktemp("smollm2") / "engine"
    build(smollm2_gguf(), ROOT / "examples" / "smollm2_hspec", output, BuildConfig(max_seq_len=1024))
    with LLM(output, RuntimeOptions(num_threads=1, kv_cache_memory=1 << 28)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def prompts(llm: LLM) -> list[list[int]]:
    rows = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    return [llm.chat_ids(row["messages"]) for row in rows[:: len(rows) // NUM_PROMPTS]][:NUM_PROMPTS]


def test_every_accepted_length_and_temperature(llm: LLM, prompts: list[list[int]]) -> None:
    checks = list(verify(llm._core, prompts[:2], bound=0.0, max_tokens=24))
    assert [str(check) for check in checks if not check.passed] == []
    drafted = [check.accepted_length for check in checks if check.drafts == "drafter" and check.temperature == 0.0]
    assert max(drafted) > 1.1, "the drafter is of no use: is it wired to the right layers?"


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_batch_with_drafts_is_solo_without(llm: LLM, prompts: list[list[int]], temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_p=0.95, seed=3, max_tokens=NUM_TOKENS, drafts="off")
    alone = [llm.generate(prompt, params).outputs[0] for prompt in prompts]
    for drafts, source in (("on", None), ("auto", None), ("on", "prompt_lookup"), ("on", "both")):
        changed = replace(params, drafts=drafts, draft_source=source)  # type: ignore[arg-type]
        together = [result.outputs[0] for result in llm.generate(prompts, changed)]
        assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]
        assert [answer.text for answer in together] == [answer.text for answer in alone]
