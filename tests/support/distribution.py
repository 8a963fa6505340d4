# SPDX-License-Identifier: Apache-2.0
"""Sampled tokens against the target's distribution, as transformers computes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from tests.unit.runtime.harness import drain

TARGET = Path(__file__).parents[1] / "golden" / "hspec_qwen3" / "target"
LEAST_EXPECTED = 8.0
PROMPT = [3, 17, 42, 8, 25]


def probabilities(folder: Path, prompts: NDArray[np.int64], temperature: float) -> NDArray[np.float64]:
    """Softmax of transformers' logits after each prompt: ``[prompts, V]``."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.from_numpy(prompts)).logits[:, -1].double()
    return torch.softmax(logits / temperature, -1).numpy()


def draw_pairs(core: EngineCore, count: int, temperature: float, drafts: str) -> NDArray[np.int64]:
    """Two tokens after the prompt for `count` seeds: int64 ``[count, 2]``.

    Three tokens are asked for, because the last one of a text is never drafted.
    """
    said: list[list[int]] = [[] for _ in range(count)]
    for seed in range(count):
        params = SamplingParams(
            temperature=temperature,
            seed=seed * 7919 + 13,
            max_tokens=3,
            ignore_eos=True,
            drafts=drafts,  # type: ignore[arg-type]
        )
        core.add(core.make(PROMPT, params, lambda update, seed=seed: said[seed].extend(update.token_ids)))
    drain(core, limit=10**6)
    return np.array(said)[:, :2]


def p_value(observed: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """Chi-square test of counts against probabilities, with rare cells put together."""
    total = int(observed.sum())
    rare = expected * total < LEAST_EXPECTED
    counts, wanted = observed[~rare].astype(float), expected[~rare] * total
    if rare.any():
        counts, wanted = np.append(counts, observed[rare].sum()), np.append(wanted, expected[rare].sum() * total)
    if wanted[-1] == 0.0:
        assert counts[-1] == 0
        counts, wanted = counts[:-1], wanted[:-1]
    return float(stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue)


def check_distribution(pairs: NDArray[np.int64], folder: Path, vocab_size: int, temperature: float) -> None:
    """First token, and second token after every first one, jointly."""
    first = probabilities(folder, np.array([PROMPT]), temperature)[0]
    after = np.array([[*PROMPT, token] for token in range(vocab_size)])
    joint = first[:, None] * probabilities(folder, after, temperature)
    observed = np.zeros((vocab_size, vocab_size), np.int64)
    np.add.at(observed, (pairs[:, 0], pairs[:, 1]), 1)
    for counts, expected in (
        (observed.sum(1), first),
        (observed.sum(0), joint.sum(0)),
        (observed.ravel(), joint.ravel()),
    ):
        assert p_value(counts, expected) > 1e-4


def check_draws(
    name: str, folder: Path, count: int, temperature: float, drafts: str, core_for: Callable[..., EngineCore]
) -> EngineCore:
    core = core_for(name, max_rows=64, num_pages=200)
    pairs = draw_pairs(core, count, temperature, drafts)
    check_distribution(pairs, folder, core.session.limits.vocab_size, temperature)
    return core
