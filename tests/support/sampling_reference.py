# SPDX-License-Identifier: Apache-2.0
"""Sampling done plainly in NumPy: the contract's noise, filters by sorting, and the distribution that should result."""

from __future__ import annotations

import numpy as np

from hspec_trt.contract import NOISE_C1, NOISE_C2, NOISE_C3, NOISE_PRIME, NOISE_UNIT


def cube(x: int) -> int:
    return pow(x % NOISE_PRIME, 3, NOISE_PRIME)


def uniform(seed: int, position: int, token_id: int) -> float:
    """u of the contract's generator, with Python's own integers."""
    k = cube(seed % NOISE_PRIME + NOISE_C1)
    k = cube(k + (seed // 65536) % NOISE_PRIME + NOISE_C2)
    k = cube(k + position + NOISE_C3)
    m = cube(k + NOISE_C1)
    k3 = cube(m + NOISE_C2)
    x = cube(token_id * (m + 1) + k)
    x = cube(x + k3)
    return (x // 256 + 0.5) * NOISE_UNIT


def gumbel(seed: int, position: int, token_ids: np.ndarray) -> np.ndarray:
    """Noise of one row, float32 of a float64 evaluation."""
    u = np.array([uniform(seed, position, int(token)) for token in token_ids])
    return (-np.log(-np.log(u))).astype(np.float32)


def allowed(z: np.ndarray, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """Which tokens of one row the filters leave, by sorting: top-k, top-p of the rest, min-p of the best."""
    keep = np.ones(z.size, bool)
    if top_k:
        keep &= z >= np.sort(z)[::-1][min(top_k, z.size) - 1]
    if top_p < 1.0:
        mass = np.where(keep, np.exp(z.astype(np.float64)), 0.0)
        order = np.argsort(-z, kind="stable")
        before = np.cumsum(mass[order]) - mass[order]
        last = z[order[np.flatnonzero(before < top_p * mass.sum())[-1]]]
        keep &= z >= last
    if min_p:
        keep &= z >= np.log(min_p)
    return keep


def filtered_softmax(
    logits: np.ndarray, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> np.ndarray:
    """Probabilities of one row after temperature and filters, float64."""
    z = (logits.astype(np.float64) - logits.max()) / temperature
    weights = np.where(allowed(z, top_k, top_p, min_p), np.exp(z), 0.0)
    return weights / weights.sum()
