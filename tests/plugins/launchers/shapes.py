# SPDX-License-Identifier: Apache-2.0
"""The shapes with which the launchers are called, and the kernels that these need."""

from __future__ import annotations

from dataclasses import dataclass, replace

from build_scripts.gpu_check import table
from build_scripts.gpu_check.cases import PagedCase, SampleCase, ScanCase, SharedCase
from build_scripts.gpu_check.ops import ScanShape
from plugins.kernels.needs import AppendNeed, Need, PagedNeed, SampleNeed, ScanNeed, SharedNeed, variants_for
from plugins.kernels.variants import Variant


@dataclass(frozen=True)
class AppendCase:
    """Rows as in `PagedCase`, and the attributes of AppendKv."""

    name: str
    rows: tuple[tuple[int, int], ...]
    num_kv_heads: int
    head_dim: int
    page_size: int


Case = PagedCase | SharedCase | ScanCase | SampleCase | AppendCase

APPEND = (
    AppendCase("one token", ((0, 1),), 1, 16, 16),
    AppendCase("two blocks a token", ((5, 3), (0, 9)), 17, 80, 32),
)
# Of the least and of the greatest tile of one engine; as many splits as the GPU holds, and as are allowed.
PAGED = (
    PagedCase("one token of eight", ((40, 1), (3, 0)), 8, 2, 64, 32),
    PagedCase("two tokens of eight", ((40, 2),), 8, 2, 64, 32),
    PagedCase("eight tokens of eight", ((40, 8), (3, 1)), 8, 2, 64, 32),
    PagedCase("prompt chunk", ((40, 8), (3, 33)), 8, 2, 64, 32),
    PagedCase("long context, two rows", ((9000, 1), (100, 8)), 4, 2, 16, 16),
    PagedCase("long context, one row", ((9000, 1),), 2, 1, 16, 16),
)
MIXED = PagedCase("more tiles in float16 than in bfloat16", ((900, 16), (3, 2)), 4, 1, 48, 16, verify_width=16)
SHARED = (
    SharedCase("long prefix, two rows", (9000, 3), 8, 4, 2, 16, 16),
    SharedCase("long prefix, one row", (9000,), 8, 2, 1, 16, 16),
)
EMPTY: tuple[Case, ...] = (
    PagedCase("no tokens", ((5, 0), (0, 0))),
    SharedCase("no rows", ()),
    ScanCase("no rows", ScanShape(2, 8, 4, 1, 4, 1), rows=0),
    SampleCase("no rows", ()),
    AppendCase("no tokens", ((5, 0),), 1, 16, 16),
)


def all_cases() -> tuple[Case, ...]:
    """Every case; one library serves them all, so that those of one shape have one verify width."""
    paged = tuple(map(_widest, (*table.ODD_PAGED, *PAGED)))
    return (*paged, MIXED, *table.ODD_SHARED, *SHARED, *table.ODD_SCAN, *table.ODD_SAMPLE, *APPEND)


def _widest(case: PagedCase) -> PagedCase:
    alike = [
        other.verify_width
        for other in (*table.ODD_PAGED, *PAGED)
        if (other.head_dim, other.shape.group, other.page_size) == (case.head_dim, case.shape.group, case.page_size)
    ]
    return replace(case, verify_width=max(alike))


def verify_width(case: PagedCase, dtype: str) -> int:
    """For which the library was compiled."""
    return 1 if case == MIXED and dtype == "bfloat16" else case.verify_width


def _need(case: Case, dtype: str) -> Need:
    if isinstance(case, PagedCase):
        return PagedNeed(dtype, case.head_dim, case.shape.group, case.page_size, verify_width(case, dtype))
    if isinstance(case, SharedCase):
        causal, no_context = int(case.causal), int(case.no_context)
        group = case.shape.group
        return SharedNeed(dtype, case.head_dim, group, case.page_size, case.block, causal, no_context)
    if isinstance(case, ScanCase):
        return ScanNeed(dtype, **vars(case.shape))
    if isinstance(case, SampleCase):
        return SampleNeed(case.vocab_size)
    return AppendNeed(dtype, case.head_dim, case.page_size)


def all_variants() -> list[Variant]:
    """The kernels of all cases, in both types."""
    return variants_for(_need(case, dtype) for case in all_cases() for dtype in ("float16", "bfloat16"))
