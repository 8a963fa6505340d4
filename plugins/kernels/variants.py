# SPDX-License-Identifier: Apache-2.0
"""Compiled variants: their key, and the tuning (tile widths, warps, pipeline stages) of their Triton function.

It owns every tuning choice. It does not know engines (`needs` does), and needs no Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from plugins.kernels import geometry
from plugins.kernels.catalog import KERNELS

SHARED_BYTES: Final = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
"""SM to the dynamic shared memory that one block may have (CUDA programming guide, compute capabilities)."""
SMALL_SHARED_MEMORY_SMS: Final = (86, 89, 120)
FALLBACK_SM: Final = 86
"""PTX is tuned for this SM: it must run on GPUs with little shared memory too."""
REGISTER_MMA_SMS: Final = (80, 86, 89, 120)
"""SMs whose matrix instructions keep both operands in registers: a wide tile of 64 keys spills there."""
WIDE_TILE: Final = 64 * 128
"""Query rows x head size from which a tile takes 8 warps."""
UNROLLED_STATE: Final = 1024
"""Elements of a head's state up to which the scan's steps are unrolled."""
ATTENTION: Final = ("verify_attention", "prefill_attention", "shared_kv_attention")

Constants = dict[str, int]


@dataclass(frozen=True, order=True)
class Variant:
    """One thing to compile: kernel, engine type (``none`` for untyped kernels) and key values in the spec's order."""

    kernel: str
    dtype: str
    key: tuple[int, ...]

    @property
    def named_key(self) -> Constants:
        """Key values by name."""
        return dict(zip(KERNELS[self.kernel].key, self.key, strict=True))

    def __str__(self) -> str:
        values = " ".join(f"{name.lower()}={value}" for name, value in self.named_key.items())
        return f"{self.kernel} {self.dtype} {values}".rstrip()


@dataclass(frozen=True)
class Tuning:
    """How a variant is compiled.

    Attributes:
        constants: all upper-case parameters of the Triton function.
        num_warps: 32 threads each.
        num_stages: depth of the software pipeline.
    """

    constants: Constants
    num_warps: int
    num_stages: int


def power_of_two(value: int, least: int = 1) -> int:
    """The least power of two that is at least `value` and `least`."""
    return 1 << (max(value, least) - 1).bit_length()


def _append(key: Constants, sm: int) -> Constants:
    return {"BLOCK": geometry.APPEND_BLOCK}


def _paged(key: Constants, sm: int) -> Constants:
    block_d = power_of_two(key["HEAD_DIM"], 16)
    wide = key["TILE"] * block_d >= WIDE_TILE
    return {"BLOCK_D": block_d, "BLOCK_N": 32 if wide and sm in REGISTER_MMA_SMS else 64}


def _prefill(key: Constants, sm: int) -> Constants:
    tile = {"TILE": geometry.PREFILL_TILE}
    return {**tile, **_paged({**key, **tile}, sm)}


def _shared(key: Constants, sm: int) -> Constants:
    return {**_paged(key, sm), "BLOCK_K": geometry.MAX_BLOCK_LEN}


def _merge(key: Constants, sm: int) -> Constants:
    return {"BLOCK_D": power_of_two(key["HEAD_DIM"]), "BLOCK_S": geometry.MAX_SPLITS}


def _scan(key: Constants, sm: int) -> Constants:
    blocks = {"BLOCK_P": "HEAD_DIM", "BLOCK_S": "STATE_SIZE", "BLOCK_T": "BLOCK_LEN"}
    sizes = {block: power_of_two(key[name]) for block, name in blocks.items()}
    return {**sizes, "UNROLL": int(sizes["BLOCK_P"] * sizes["BLOCK_S"] <= UNROLLED_STATE)}


def _chunk(key: Constants, sm: int) -> Constants:
    return {"CHUNK": geometry.SAMPLE_CHUNK}


def _filter(key: Constants, sm: int) -> Constants:
    return {**_pick(key, sm), "SUB": 512}


def _pick(key: Constants, sm: int) -> Constants:
    return {**_chunk(key, sm), "MAX_CHUNKS": geometry.MAX_CHUNKS}


def _finish(key: Constants, sm: int) -> Constants:
    return {"MAX_CHUNKS": geometry.MAX_CHUNKS}


_DERIVED: Final[Mapping[str, Callable[[Constants, int], Constants]]] = {
    "append_kv": _append,
    "verify_attention": _paged,
    "prefill_attention": _prefill,
    "shared_kv_attention": _shared,
    "merge_splits": _merge,
    "mamba2_block_scan": _scan,
    "sample_scan": _chunk,
    "sample_filter": _filter,
    "sample_pick": _pick,
    "sample_finish": _finish,
}


def _scan_warps(values: Constants) -> int:
    """Enough threads that each keeps at most 16 elements of the state."""
    threads = values["BLOCK_P"] * values["BLOCK_S"] // 16
    return min(max(threads // 32, KERNELS["mamba2_block_scan"].num_warps), 16)


def tuning(variant: Variant, sm: int) -> Tuning:
    """The tuning of `variant` that is tried first on one SM."""
    spec, key = KERNELS[variant.kernel], variant.named_key
    values = {**key, **_DERIVED[variant.kernel](key, sm)}
    if variant.kernel not in ATTENTION:
        warps = _scan_warps(values) if variant.kernel == "mamba2_block_scan" else spec.num_warps
        return Tuning(values, warps, spec.num_stages)
    warps = 8 if values["TILE"] * values["BLOCK_D"] >= WIDE_TILE else 4
    return Tuning(values, warps, 2 if sm in SMALL_SHARED_MEMORY_SMS else 3)


def tunings(variant: Variant, sm: int) -> tuple[Tuning, ...]:
    """Tunings in the order of preference; the first one that spills no register is taken."""
    first = tuning(variant, sm)
    if variant.kernel == "mamba2_block_scan":
        return (first, replace(first, constants={**first.constants, "UNROLL": 0}))
    if variant.kernel not in ATTENTION:
        return (first, replace(first, num_warps=2 * first.num_warps))
    shallow = replace(first, num_stages=2)
    narrow = replace(first, constants={**first.constants, "BLOCK_N": 32})
    wide = replace(narrow, num_warps=2 * first.num_warps)
    unique: list[Tuning] = []
    for option in (first, shallow, narrow, replace(narrow, num_stages=2), wide):
        if option not in unique:
            unique.append(option)
    return tuple(unique)
