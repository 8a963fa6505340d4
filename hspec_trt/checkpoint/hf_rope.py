# SPDX-License-Identifier: Apache-2.0
"""Reads the rotary embedding of a Hugging Face configuration, in its old and its new spelling.

Owns ``rope_parameters`` / ``rope_scaling`` / ``rope_theta``; what the values mean is `hspec_trt.config.rope`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hspec_trt.checkpoint.fields import REQUIRED, Fields, shown
from hspec_trt.checkpoint.shown import printable
from hspec_trt.config.rope import ROPE_TYPES, RopeConfig, RopeType

MAX_THETA: Final = 1e12
MAX_FACTOR: Final = 1e4
MAX_POSITIONS: Final = 1 << 24
_DEFAULT: Final = RopeConfig()
_OBJECTS: Final = ("rope_parameters", "rope_scaling")
_BESIDE: Final = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")


def read_rope(config: Fields, *, head_dim: int, max_position: int) -> RopeConfig:
    """The rotary embedding; faults (C030 to C033, C040) are noted in `config`.

    Args:
        config: config.json.
        head_dim: channels of a head.
        max_position: ``max_position_embeddings``, tokens.
    """
    rope = _merged(config)
    kind = _rope_type(rope)
    theta = rope.number("rope_theta", 0, MAX_THETA, _DEFAULT.theta)
    if theta <= 1.0:
        rope.fault("C032", f"rope_theta is {theta:g}", needed="more than 1", name="rope_theta")
    share = rope.number("partial_rotary_factor", 0, 1.0, _DEFAULT.partial_rotary_factor)
    rotary_dim = int(head_dim * share)
    if rotary_dim < 2 or rotary_dim % 2:
        rope.fault("C030", f"{rotary_dim} of {head_dim} channels of a head are rotated", needed="an even number")
    return _READERS[kind](rope, RopeConfig(kind, theta, partial_rotary_factor=share), max_position)


def _merged(config: Fields) -> Fields:
    """The rope object, with the fields that may also stand beside it."""
    given = [name for name in _OBJECTS if config.has(name)]
    if len(given) == 2 and config.values[given[0]] != config.values[given[1]]:
        config.fault("C030", "rope_parameters and rope_scaling differ", needed="one of them, or the same in both")
    rope = config.object(given[0]) if given else Fields({}, config.where, config.faults)
    beside = {name: config.values[name] for name in _BESIDE if config.has(name)}
    for name, value in beside.items():
        if rope.has(name) and rope.values[name] != value:
            found = f"{name} is {shown(value)}, but {shown(rope.values[name])} in {rope.where}"
            config.fault("C030", found, needed="one value", name=name)
    return Fields(rope.values | beside, rope.where, config.faults)


def _rope_type(rope: Fields) -> RopeType:
    given = {name: rope.text(name) for name in ("rope_type", "type") if rope.has(name)}
    if len(set(given.values())) > 1:
        rope.fault("C030", f"rope_type is {given['rope_type']!r} but type is {given['type']!r}", needed="one of them")
    name = next(iter(given.values()), _DEFAULT.rope_type)
    nested = [key for key, value in rope.values.items() if isinstance(value, dict)]
    if nested:
        rope.fault(
            "C040", f"rope parameters per layer type ({printable(', '.join(nested))})", needed="one set for all layers"
        )
    for kind in ROPE_TYPES:
        if kind == name:
            return kind
    fix = "Its frequencies change with the length of the text, which one compiled table cannot follow"
    fix = fix if name in ("dynamic", "longrope") else ""
    rope.fault("C040", f"rope scaling {name[:80]!r} is not supported", needed=", ".join(ROPE_TYPES), fix=fix)
    return _DEFAULT.rope_type


def _plain(rope: Fields, base: RopeConfig, max_position: int) -> RopeConfig:
    return base


def _linear(rope: Fields, base: RopeConfig, max_position: int) -> RopeConfig:
    return replace(base, factor=rope.number("factor", 1, MAX_FACTOR))


def _llama3(rope: Fields, base: RopeConfig, max_position: int) -> RopeConfig:
    low = rope.number("low_freq_factor", 0, MAX_FACTOR)
    high = rope.number("high_freq_factor", 0, MAX_FACTOR)
    if high <= low and rope.has("low_freq_factor") and rope.has("high_freq_factor"):
        rope.fault("C030", f"high_freq_factor {high:g} is not above low_freq_factor {low:g}")
    return replace(
        base,
        factor=rope.number("factor", 1, MAX_FACTOR),
        original_max_position=_original(rope, max_position),
        low_freq_factor=low,
        high_freq_factor=high,
    )


def _yarn(rope: Fields, base: RopeConfig, max_position: int) -> RopeConfig:
    original = _original(rope, max_position)
    # A null factor stands for the ratio of the lengths, a missing one is an error, as in transformers.
    ratio = max_position / original if "factor" in rope.values else REQUIRED
    factor = rope.number("factor", 1, MAX_FACTOR, ratio)
    fast = rope.number("beta_fast", 0, MAX_FACTOR, base.beta_fast)
    slow = rope.number("beta_slow", 0, MAX_FACTOR, base.beta_slow)
    if fast < slow:
        rope.fault("C030", f"beta_fast {fast:g} is below beta_slow {slow:g}")
    return replace(
        base,
        factor=factor,
        original_max_position=original,
        beta_fast=fast,
        beta_slow=slow,
        attention_factor=_attention_factor(rope, factor),
        truncate=rope.flag("truncate", base.truncate),
    )


def _attention_factor(rope: Fields, factor: float) -> float | None:
    """Yarn's multiplier of cos and sin; None where it follows from the factor alone."""
    if rope.has("attention_factor"):
        return rope.number("attention_factor", 0, MAX_FACTOR)
    if not (rope.values.get("mscale") and rope.values.get("mscale_all_dim")):
        return None
    numerator, denominator = rope.number("mscale", 0, 100), rope.number("mscale_all_dim", 0, 100)
    if factor <= 1:
        return 1.0
    return (0.1 * numerator * math.log(factor) + 1.0) / (0.1 * denominator * math.log(factor) + 1.0)


def _original(rope: Fields, max_position: int) -> int:
    return rope.integer("original_max_position_embeddings", 1, MAX_POSITIONS, max_position)


_READERS: Final[dict[RopeType, Callable[[Fields, RopeConfig, int], RopeConfig]]] = {
    "default": _plain,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
