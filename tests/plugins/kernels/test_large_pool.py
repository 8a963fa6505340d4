# SPDX-License-Identifier: Apache-2.0
"""Pages beyond 2**31 elements: every offset into a pool must be 64 bits wide. Only the pages used take memory."""

from __future__ import annotations

from dataclasses import replace

import torch

from build_scripts.gpu_check import cases, checks, reference
from build_scripts.gpu_check.cases import PagedCase, Place, SharedCase
from build_scripts.gpu_check.runners import TritonRunner
from build_scripts.gpu_check.source_ops import SourceOps

OPS = SourceOps(TritonRunner())
PLACE = Place(dtype=torch.float16)


def _moved(pages: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same pages at the end of a pool of more than 2**31 elements, which is never touched elsewhere."""
    page_elements = pages[0].numel()
    shift = 2**31 // page_elements + 3
    pool = torch.empty((shift + len(pages), *pages.shape[1:]), dtype=pages.dtype)
    pool[shift:] = pages
    return pool, torch.where(table > 0, table + shift, table)


def test_paged_attention() -> None:
    case = PagedCase("large pool", ((20, 2), (0, 40)), 2, 1, 128, 128, splits=2, verify_width=4)
    inputs = cases.paged_inputs(case, PLACE)
    pool, table = _moved(inputs.kv_pages, inputs.step.page_table)
    got = OPS.paged_attention(
        case.shape, replace(inputs.step, page_table=table), inputs.query, inputs.key, inputs.value, pool,
        verify_width=4, splits=2,
    )  # fmt: skip
    small = inputs.kv_pages.clone()
    want = OPS.paged_attention(
        case.shape, inputs.step, inputs.query, inputs.key, inputs.value, small, verify_width=4, splits=2
    )
    assert torch.equal(got, want)
    assert torch.equal(pool[-len(small) + 1 :].view(torch.int16), small[1:].view(torch.int16))
    assert checks.check_paged(OPS, case, PLACE).passed


def test_shared_kv_attention() -> None:
    case = SharedCase("large pool", (37,), 4, 2, 1, 128, 128)
    inputs = cases.shared_inputs(case, PLACE)
    pool, table = _moved(inputs.kv_pages, inputs.page_table)
    heads = (inputs.query, inputs.key, inputs.value)
    got = OPS.shared_kv_attention(case.shape, *heads, pool, table, inputs.prefix_lens, causal=True, no_context=False)
    kind = {"causal": True, "no_context": False, "dtype": torch.float64}
    want = reference.shared_kv_attention(
        case.shape, *heads, inputs.kv_pages, inputs.page_table, inputs.prefix_lens, **kind
    )
    assert (got.double() - want).abs().max() < 5e-3
