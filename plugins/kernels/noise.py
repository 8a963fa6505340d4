# SPDX-License-Identifier: Apache-2.0
"""The counter-based noise g(seed, position, token id) of `hspec_trt.contract`, to the last bit of its integer.

The modulus is 2**31 - 69, so a remainder costs two folds (2**31 = 69 modulo P) instead of a 64-bit division.
"""

from __future__ import annotations

import triton
import triton.language as tl

PRIME = tl.constexpr(2147483579)
C1 = tl.constexpr(1540483477)
C2 = tl.constexpr(1103515245)
C3 = tl.constexpr(826366247)
UNIT = tl.constexpr(2.0**-23)
LEAST_REACH = tl.constexpr(-19.5)
"""Noise lies in [-2.82, 16.64], so a token whose z is below this never beats the token with z = 0."""


@triton.jit
def modulo(x):
    """x mod P for int64 0 <= x < 2**63."""
    x = (x & 0x7FFFFFFF) + (x >> 31) * 69
    x = (x & 0x7FFFFFFF) + (x >> 31) * 69
    return tl.where(x >= PRIME, x - PRIME, x)


@triton.jit
def cube(x):
    """x ** 3 mod P for int64 0 <= x < P."""
    return modulo(modulo(x * x) * x)


@triton.jit
def row_keys(seed, position):
    """The three int64 keys of one row of logits: factor, offset and final shift of the token's counter."""
    k = cube(modulo(modulo(seed) + C1))
    k = cube(modulo(k + modulo(seed // 65536) + C2))
    k = cube(modulo(k + position.to(tl.int64) + C3))
    m = cube(modulo(k + C1))
    return m + 1, k, cube(modulo(m + C2))


@triton.jit
def gumbel(token_id, factor, offset, shift):
    """Gumbel noise of each token id, float32."""
    x = cube(modulo(token_id.to(tl.int64) * factor + offset))
    x = cube(modulo(x + shift))
    u = ((x >> 8).to(tl.int32).to(tl.float32) + 0.5) * UNIT
    return -tl.log(-tl.log(u))
