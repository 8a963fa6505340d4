# SPDX-License-Identifier: Apache-2.0
"""Requests on engines that the product built: windows at their edge, the mask token in a prompt, unseeded twins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hspec_trt import LLM, RuntimeOptions, SamplingParams
from hspec_trt.config.build import BuildConfig
from hspec_trt.errors import RequestError
from hspec_trt.pipeline import build
from tests.support.tiny_models import TinyTarget, t_bigram, write_target

GOLDEN = Path(__file__).parents[1] / "golden" / "hspec_qwen3"
BUILD = BuildConfig(max_batch_size=8, max_num_tokens=64, page_size=16)
SMALL = RuntimeOptions(num_threads=1, kv_cache_memory=1 << 24)
WINDOW = 8


@pytest.fixture(scope="module")
def hspec(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    engine = tmp_path_factory.mktemp("hspec") / "engine"
    build(GOLDEN / "target", GOLDEN / "drafter", engine, BUILD)
    with LLM(engine, SMALL) as llm:
        yield llm


@pytest.fixture(scope="module")
def one_layer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """One sliding layer, so that nothing reaches beyond its window by way of other tokens."""
    folder = tmp_path_factory.mktemp("window")
    target = TinyTarget(family="qwen3", num_layers=1, window=WINDOW, std=0.3)
    build(write_target(folder / "t", target), None, folder / "engine", BUILD)
    with LLM(folder / "engine", SMALL) as llm:
        yield llm


@pytest.mark.parametrize("length", [7, 8, 9, 16, 17, 40])
@pytest.mark.parametrize("drafts", ["on", "off"])
def test_window_counts_the_current_token(length: int, drafts: str, one_layer: LLM) -> None:
    """Case D4: a token at distance 7 is seen, one at distance 8 is not; also where drafts carry a row over the edge."""
    params = SamplingParams(temperature=0.0, max_tokens=1, drafts=drafts)  # type: ignore[arg-type]
    prompt = np.random.default_rng(length).integers(3, 61, length).tolist()

    def logprob(ids: list[int]) -> tuple[int, float]:
        answer = one_layer.generate(ids, params).outputs[0]
        return answer.token_ids[0], answer.logprobs[0]

    base = logprob(prompt)
    for distance in range(1, length):
        changed = list(prompt)
        changed[-1 - distance] = 3 + (changed[-1 - distance] - 2) % 58
        assert (logprob(changed) != base) == (distance < WINDOW), f"distance {distance}"


def test_mask_token_in_a_prompt_is_a_token_like_others(hspec: LLM) -> None:
    """Case A20, the documented rule: the mask has a meaning in draft blocks only, so a prompt may hold it anywhere."""
    drafter = hspec.folder.manifest.drafter
    assert drafter is not None
    mask, last = drafter.mask_token_id, hspec.folder.manifest.target.vocab_size - 1
    for prompt in ([mask], [5, mask, mask, 9], [mask] * 17, [last, mask]):
        texts = [
            hspec.generate(
                prompt, SamplingParams(temperature=0.9, seed=4, max_tokens=20, ignore_eos=True, drafts=drafts)
            )
            for drafts in ("on", "off")
        ]
        assert texts[0].outputs[0].token_ids == texts[1].outputs[0].token_ids
        assert texts[0].outputs[0].drafts.drafted > 0


def test_bad_requests_between_good_ones(hspec: LLM) -> None:
    """Case A20: each is refused by itself, and what runs beside it and after it is what it would be alone."""
    params = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
    alone = hspec.generate([7, 8, 9], params).outputs[0].token_ids
    running = hspec.generate_async([7, 8, 9], params)
    for ids in ([-1], [256], [2**31], [2**63], [], [1.5], [None], [True]):
        with pytest.raises(RequestError, match=r"R10[234]"):
            hspec.generate_async(ids, params)  # type: ignore[arg-type]
    assert running.result(60).outputs[0].token_ids == alone
    assert hspec.generate([7, 8, 9], params).outputs[0].token_ids == alone


def test_unseeded_twins_are_independent(hspec: LLM) -> None:
    """Case C13: together and one after the other, equal answers are as rare as chance makes them."""
    params = SamplingParams(temperature=1.0, max_tokens=1, ignore_eos=True)
    together = [output.outputs[0] for output in hspec.generate([[3, 4]] * 400, params)]
    one_by_one = [hspec.generate([3, 4], params).outputs[0] for _ in range(60)]
    for answers in (together, one_by_one):
        first, second = answers[::2], answers[1::2]
        expected = np.mean([np.exp(answer.logprobs[0]) for answer in answers])  # of sum p^2
        equal = sum(a.token_ids == b.token_ids for a, b in zip(first, second, strict=True))
        deviation = np.sqrt(len(first) * expected * (1 - expected))
        assert abs(equal - len(first) * expected) < 4.5 * deviation + 1


def test_counts_are_those_of_what_is_kept(tmp_path: Path) -> None:
    """Case F4: whatever ends an answer inside a run of drafts, every figure counts the tokens that are in it."""
    target, weights = t_bigram()
    build(write_target(tmp_path / "t", target, weights), None, tmp_path / "e", BUILD)
    cycle = [5]
    head = weights["lm_head.weight"]
    while len(cycle) < 61:
        cycle.append(int(np.argmax(head[:, cycle[-1]])))
    lap = [*cycle, cycle[0], cycle[1]]  # the second lap is what look-up drafts
    with LLM(tmp_path / "e", SMALL) as llm:
        for place in range(2, 14):
            stop = cycle[place]
            params = SamplingParams(
                temperature=0.0, max_tokens=40, drafts="on", stop_token_ids=(stop,), ignore_eos=True
            )
            answer = llm.generate(lap, params).outputs[0]
            assert answer.token_ids == cycle[2 : place + 1]
            assert (answer.finish_reason, answer.stop_reason) == ("stop_token", stop)
            drafts = answer.drafts
            assert len(answer.logprobs) == len(answer.token_ids) == drafts.num_tokens
            assert drafts.emitted == sum(length * count for length, count in drafts.lengths.items())
            assert drafts.steps == sum(drafts.lengths.values())
            assert drafts.num_accepted <= drafts.emitted
            assert all(a <= o for a, o in zip(drafts.accepted, drafts.offered, strict=True))
