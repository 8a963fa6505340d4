# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding parameters of Llama- and Qwen3-shaped models.

Owns the meaning of each scaling type (formulas as in transformers' ``modeling_rope_utils``); it does not know how a
checkpoint spells them (`hspec_trt.checkpoint` does).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

RopeType = Literal["default", "linear", "llama3", "yarn"]
ROPE_TYPES: tuple[RopeType, ...] = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding: half-split (NeoX) rotation of the first `rotary_dim` channels of a head.

    Attributes:
        theta: base of the frequencies.
        factor: scaling factor (linear, llama3, yarn).
        original_max_position: trained context length before scaling, tokens (llama3, yarn).
        low_freq_factor, high_freq_factor: llama3 band edges.
        beta_fast, beta_slow: yarn band edges, rotations.
        attention_factor: yarn's multiplier of cos and sin; None derives ``0.1 ln(factor) + 1``.
        partial_rotary_factor: share of a head's channels that are rotated.
    """

    rope_type: RopeType = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True
    partial_rotary_factor: float = 1.0

    def rotary_dim(self, head_dim: int) -> int:
        """Channels of a head that are rotated."""
        return int(head_dim * self.partial_rotary_factor)

    @property
    def attention_scaling(self) -> float:
        """Multiplier of cos and sin (1 except for yarn)."""
        if self.rope_type != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return 1.0 if self.factor <= 1.0 else 0.1 * math.log(self.factor) + 1.0

    def inverse_frequencies(self, head_dim: int) -> NDArray[np.float32]:
        """Angle per position of each channel pair: float32 ``[rotary_dim / 2]``."""
        dim = self.rotary_dim(head_dim)
        exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
        inverse: NDArray[np.float32] = (1.0 / (np.float32(self.theta) ** exponents)).astype(np.float32)
        if self.rope_type == "linear":
            inverse = inverse / np.float32(self.factor)
        elif self.rope_type == "llama3":
            inverse = self._llama3(inverse)
        elif self.rope_type == "yarn":
            inverse = self._yarn(inverse, dim)
        return inverse.astype(np.float32)

    def _llama3(self, inverse: NDArray[np.float32]) -> NDArray[np.float32]:
        wavelength = 2.0 * math.pi / inverse
        low = self.original_max_position / self.low_freq_factor
        high = self.original_max_position / self.high_freq_factor
        smooth = (self.original_max_position / wavelength - self.low_freq_factor) / (
            self.high_freq_factor - self.low_freq_factor
        )
        blended = (1.0 - smooth) * inverse / self.factor + smooth * inverse
        scaled = np.where(wavelength > low, inverse / self.factor, inverse)
        banded: NDArray[np.float32] = np.where((wavelength <= low) & (wavelength >= high), blended, scaled)
        return banded

    def _yarn(self, inverse: NDArray[np.float32], dim: int) -> NDArray[np.float32]:
        def channel(rotations: float) -> float:
            """Channel index at which a trained context makes that many rotations."""
            period = self.original_max_position / (rotations * 2.0 * math.pi)
            return dim * math.log(period) / (2.0 * math.log(self.theta))

        low, high = channel(self.beta_fast), channel(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0.0), min(high, dim - 1.0)
        if low == high:
            high += 0.001
        ramp = np.clip((np.arange(dim // 2, dtype=np.float32) - low) / (high - low), 0.0, 1.0)
        blended: NDArray[np.float32] = inverse / self.factor * ramp + inverse * (1.0 - ramp)
        return blended
