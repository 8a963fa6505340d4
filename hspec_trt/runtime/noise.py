# SPDX-License-Identifier: Apache-2.0
"""The contract's sampling noise in NumPy, for reports that must say how close a choice was. No engine uses it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hspec_trt import contract as c

Int64 = NDArray[np.int64]


def gumbel(seed: int, position: int, token_ids: Int64) -> NDArray[np.float32]:
    """Gumbel noise g(seed, position, token id); formula at `hspec_trt.contract.NOISE_PRIME`.

    Args:
        position: of the token that is drawn.
        token_ids: int64 ``[n]``.

    Returns:
        float32 ``[n]``.
    """
    prime = c.NOISE_PRIME
    k = _cube(np.array((seed % prime + c.NOISE_C1) % prime))
    k = _cube((k + (seed // 65536) % prime + c.NOISE_C2) % prime)
    k = _cube((k + position + c.NOISE_C3) % prime)
    m = _cube((k + c.NOISE_C1) % prime)
    k3 = _cube((m + c.NOISE_C2) % prime)
    x = _cube((token_ids * (m + 1) + k) % prime)
    x = _cube((x + k3) % prime)
    uniform = ((x // 256) + 0.5) * c.NOISE_UNIT
    noise: NDArray[np.float32] = (-np.log(-np.log(uniform))).astype(np.float32)
    return noise


def _cube(x: Int64) -> Int64:
    return x * x % c.NOISE_PRIME * x % c.NOISE_PRIME
