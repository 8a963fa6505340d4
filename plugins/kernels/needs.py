# SPDX-License-Identifier: Apache-2.0
"""From what an engine's ops need to the variants that must be compiled: nothing is typed by hand.

It does not read engines (build_scripts/engine_needs.py does), and needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

from plugins.kernels import geometry
from plugins.kernels.catalog import COMPILED_DTYPES
from plugins.kernels.variants import Variant, power_of_two

PAGE_SIZES: Final = (16, 32, 64, 128)
MAX_HEAD_DIM: Final = 256
MAX_STATE: Final = 8192
"""Elements of one head's state (head size x state size, each rounded up to a power of two) that fit the registers."""


@dataclass(frozen=True)
class PagedNeed:
    """One kind of PagedAttention node.

    Attributes:
        dtype: of the engine, a name of `hspec_trt.dtypes`.
        group: query heads of one K/V head.
        verify_width: drafts of a step + 1.
    """

    dtype: str
    head_dim: int
    group: int
    page_size: int
    verify_width: int

    def variants(self) -> Iterable[Variant]:
        """Append, one verify kernel a tile, merge, prefill."""
        base = (self.head_dim, self.group, self.page_size)
        yield Variant("append_kv", self.dtype, base)
        for tile in geometry.verify_tiles(self.group, self.verify_width):
            yield Variant("verify_attention", self.dtype, (*base, tile))
        yield Variant("merge_splits", self.dtype, (self.head_dim, 1))
        yield Variant("prefill_attention", self.dtype, base)


@dataclass(frozen=True)
class SharedNeed:
    """One kind of SharedKvAttention node; `block` is B, `causal` and `no_context` are 0 or 1."""

    dtype: str
    head_dim: int
    group: int
    page_size: int
    block: int
    causal: int
    no_context: int = 0

    def variants(self) -> Iterable[Variant]:
        """Attention, and the merge unless nothing of the pages is read."""
        tile = geometry.tile_rows(self.group * self.block)
        key = (self.head_dim, self.group, self.page_size, tile, self.causal, self.no_context)
        yield Variant("shared_kv_attention", self.dtype, key)
        if not self.no_context:
            yield Variant("merge_splits", self.dtype, (self.head_dim, 0))


@dataclass(frozen=True)
class AppendNeed:
    """Appending alone, to a cache that no attention op of the same node reads: append_kv with GROUP = 0."""

    dtype: str
    head_dim: int
    page_size: int

    def variants(self) -> Iterable[Variant]:
        """Append without an output."""
        yield Variant("append_kv", self.dtype, (self.head_dim, 0, self.page_size))


@dataclass(frozen=True)
class ScanNeed:
    """One kind of Mamba2BlockScan node: the op's attributes."""

    dtype: str
    num_heads: int
    head_dim: int
    state_size: int
    n_groups: int
    conv_kernel: int
    block_size: int

    def variants(self) -> Iterable[Variant]:
        """One."""
        yield Variant("mamba2_block_scan", self.dtype, tuple(getattr(self, item.name) for item in fields(self)[1:]))


@dataclass(frozen=True)
class SampleNeed:
    """One kind of SampleTokens node."""

    vocab_size: int

    def variants(self) -> Iterable[Variant]:
        """The four passes."""
        align = geometry.vocab_align(self.vocab_size)
        for kernel in ("sample_scan", "sample_filter", "sample_pick"):
            yield Variant(kernel, "none", (align,))
        yield Variant("sample_finish", "none", ())


Need = PagedNeed | SharedNeed | AppendNeed | ScanNeed | SampleNeed
KINDS: Final[dict[str, type[Need]]] = {
    "paged": PagedNeed,
    "shared": SharedNeed,
    "append": AppendNeed,
    "scan": ScanNeed,
    "sample": SampleNeed,
}
_BOUNDS: Final = {
    "head_dim": (1, MAX_HEAD_DIM),
    "group": (1, geometry.MAX_TILE),
    "verify_width": (1, geometry.MAX_TILE),
    "block": (1, geometry.MAX_BLOCK_LEN),
    "block_size": (1, geometry.MAX_BLOCK_LEN),
    "vocab_size": (1, geometry.MAX_CHUNKS * geometry.SAMPLE_CHUNK),
}


def faults(need: Need) -> list[str]:
    """What of `need` no kernel can do, in words; empty if all can."""
    found = []
    values = {item.name: getattr(need, item.name) for item in fields(need)}
    if values.get("dtype", COMPILED_DTYPES[0]) not in COMPILED_DTYPES:
        found.append(f"type {values['dtype']}; kernels exist for {' and '.join(COMPILED_DTYPES)}")
    if values.get("page_size", PAGE_SIZES[0]) not in PAGE_SIZES:
        found.append(f"page_size {values['page_size']}; kernels exist for {PAGE_SIZES}")
    for name, (least, most) in _BOUNDS.items():
        if name in values and not least <= values[name] <= most:
            found.append(f"{name} {values[name]}; kernels take {least} to {most}")
    if values.get("group", 1) * values.get("block", 1) > geometry.MAX_TILE:
        found.append(
            f"block {values['block']} x {values['group']} heads a group; kernels take {geometry.MAX_TILE} rows"
        )
    if isinstance(need, ScanNeed):
        state = power_of_two(need.head_dim) * power_of_two(need.state_size)
        if state > MAX_STATE:
            found.append(f"a state of {need.head_dim} x {need.state_size} a head; kernels take {MAX_STATE} elements")
        if need.num_heads % need.n_groups:
            found.append(f"{need.num_heads} heads in {need.n_groups} groups; kernels take a multiple")
    return found


def variants_for(needs: Iterable[Need]) -> list[Variant]:
    """All variants that `needs` use, each once, in a fixed order."""
    return sorted({variant for need in needs for variant in need.variants()})
