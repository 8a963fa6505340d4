# SPDX-License-Identifier: Apache-2.0
"""The noise generator: every bit of its integer, against the contract's formula in Python's own integers."""

from __future__ import annotations

import math
import random

import pytest
import torch
import triton
import triton.language as tl
from scipy.stats import chisquare

from hspec_trt.contract import NOISE_C1, NOISE_C2, NOISE_C3, NOISE_PRIME, NOISE_UNIT
from plugins.kernels import noise


@triton.jit
def _modulo(values, results, COUNT: tl.constexpr):
    lane = tl.arange(0, COUNT)
    tl.store(results + lane, noise.modulo(tl.load(values + lane)))


@triton.jit
def _words(seed, position, token_ids, words, gumbels, COUNT: tl.constexpr):
    lane = tl.arange(0, COUNT)
    factor, offset, shift = noise.row_keys(tl.load(seed), tl.load(position))
    token = tl.load(token_ids + lane)
    x = noise.cube(noise.modulo(token.to(tl.int64) * factor + offset))
    tl.store(words + lane, noise.cube(noise.modulo(x + shift)))
    tl.store(gumbels + lane, noise.gumbel(token, factor, offset, shift))


@triton.jit
def _draws(seed, first, token_ids, gumbels, TOKENS: tl.constexpr, COUNT: tl.constexpr):
    lane = tl.arange(0, COUNT)
    factor, offset, shift = noise.row_keys(seed, first + lane)
    for index in tl.static_range(TOKENS):
        token = tl.load(token_ids + index)
        tl.store(gumbels + index * COUNT + lane, noise.gumbel(token, factor, offset, shift))


def _cube(x: int) -> int:
    return (x * x % NOISE_PRIME) * x % NOISE_PRIME


def _word(seed: int, position: int, token: int) -> int:
    """As `hspec_trt.contract` writes it."""
    k = _cube((seed % NOISE_PRIME + NOISE_C1) % NOISE_PRIME)
    k = _cube((k + (seed // 65536) % NOISE_PRIME + NOISE_C2) % NOISE_PRIME)
    k = _cube((k + position + NOISE_C3) % NOISE_PRIME)
    m = _cube((k + NOISE_C1) % NOISE_PRIME)
    k3 = _cube((m + NOISE_C2) % NOISE_PRIME)
    x = _cube((token * (m + 1) + k) % NOISE_PRIME)
    return _cube((x + k3) % NOISE_PRIME)


def test_constants_are_the_contract_s() -> None:
    assert (noise.PRIME.value, noise.C1.value, noise.C2.value, noise.C3.value, noise.UNIT.value) == (
        NOISE_PRIME, NOISE_C1, NOISE_C2, NOISE_C3, NOISE_UNIT,
    )  # fmt: skip


def test_modulo_at_the_edges() -> None:
    p = NOISE_PRIME
    edges = [
        0,
        1,
        p - 1,
        p,
        p + 1,
        2 * p - 1,
        2 * p,
        2**31 - 1,
        2**31,
        (p - 1) ** 2,
        (p - 1) * p + p - 1,
        2**62,
        2**63 - 1,
    ]
    draw = random.Random(1)
    values = edges + [draw.randrange(2**63) for _ in range(64 - len(edges))]
    results = torch.full((64,), -1)
    _modulo[(1,)](torch.tensor(values), results, 64)
    assert results.tolist() == [value % p for value in values]


@pytest.mark.parametrize("seed", [0, 1, 65535, 65536, 2**31 - 1, 2**31, NOISE_PRIME, 2**62 + 7, 2**63 - 1])
@pytest.mark.parametrize("position", [0, 1, 131_071, 2**31 - 1])
def test_words_and_noise(seed: int, position: int) -> None:
    tokens = [0, 1, 2, 151_935, 262_143, 2**31 - 1, 17, 4096]
    words, gumbels = torch.full((8,), -1), torch.zeros(8)
    _words[(1,)](
        torch.tensor([seed]), torch.tensor([position], dtype=torch.int32), torch.tensor(tokens, dtype=torch.int32),
        words, gumbels, 8,
    )  # fmt: skip
    wanted = [_word(seed, position, token) for token in tokens]
    assert words.tolist() == wanted
    for got, word in zip(gumbels.tolist(), wanted, strict=True):
        u = (word // 256 + 0.5) * NOISE_UNIT
        assert math.isclose(got, -math.log(-math.log(u)), rel_tol=1e-5, abs_tol=1e-6)


def test_no_noise_reaches_beyond_the_bound() -> None:
    most = -math.log(-math.log((NOISE_PRIME // 256 + 0.5) * NOISE_UNIT))
    least = -math.log(-math.log(0.5 * NOISE_UNIT))
    assert noise.LEAST_REACH.value < least - most


@pytest.mark.parametrize("seed", [0, 11, 2**40 + 3])
def test_draws_follow_the_distribution(seed: int) -> None:
    count = 16_384
    probabilities = torch.tensor([0.45, 0.25, 0.15, 0.1, 0.049, 0.001])
    gumbels = torch.zeros(6, count)
    tokens = torch.tensor([0, 1, 2, 3, 151_000, 151_001], dtype=torch.int32)
    _draws[(1,)](seed, 1000, tokens, gumbels, 6, count)
    drawn = (torch.log(probabilities)[:, None] + gumbels).argmax(0)
    counts = torch.bincount(drawn, minlength=6)
    assert (
        chisquare(counts.tolist(), (probabilities.double() / probabilities.double().sum() * count).tolist()).pvalue
        > 1e-3
    )
    pairs = torch.bincount(drawn[:-1] * 6 + drawn[1:], minlength=36)  # neighbouring positions are independent
    joint = torch.outer(probabilities, probabilities).double().flatten()
    assert chisquare(pairs.tolist(), (joint / joint.sum() * (count - 1)).tolist()).pvalue > 1e-3
