# SPDX-License-Identifier: Apache-2.0
"""append_kv by itself: without an output, and with positions that no valid step has."""

from __future__ import annotations

import torch

from build_scripts.gpu_check.runners import TritonRunner
from build_scripts.gpu_check.source_ops import launch
from plugins.kernels import geometry

HEAD_DIM, PAGE_SIZE, KV_HEADS = 80, 16, 3


def _append(group: int, rows: list[int], positions: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys, pages and output after appending; two rows of pages (1, 2) and (3, 0)."""
    tokens = len(rows)
    key = torch.randn(tokens, KV_HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(0))
    pages = torch.full((5, 2, KV_HEADS, PAGE_SIZE, HEAD_DIM), 9.0)
    output = torch.full((tokens, max(group, 1) * KV_HEADS, HEAD_DIM), 9.0)
    launch(
        TritonRunner(), "append_kv", torch.float32, (HEAD_DIM, group, PAGE_SIZE),
        geometry.append_grid(tokens, KV_HEADS, HEAD_DIM),
        key=key, value=-key, kv_pages=pages, page_table=torch.tensor([[1, 2], [3, 0]], dtype=torch.int32),
        token_rows=torch.tensor(rows, dtype=torch.int32), token_positions=torch.tensor(positions, dtype=torch.int32),
        output=output, num_rows=2, max_pages=2, num_kv_heads=KV_HEADS,
    )  # fmt: skip
    return key, pages, output


def test_each_token_lands_in_its_page() -> None:
    key, pages, output = _append(2, [0, 0, 1], [15, 16, 3])
    for token, (page, slot) in enumerate(((1, 15), (2, 0), (3, 3))):
        assert torch.equal(pages[page, 0, :, slot], key[token])
        assert torch.equal(pages[page, 1, :, slot], -key[token])
    assert int((pages != 9.0).any(-1).sum()) == 2 * KV_HEADS * 3
    assert bool((output == 9.0).all())


def test_padding_goes_to_page_0_and_zeroes_its_output() -> None:
    key, pages, output = _append(2, [0, 2], [0, 0])
    assert torch.equal(pages[0, 0, :, 1], key[1])
    assert bool((output[0] == 9.0).all()) and bool((output[1] == 0.0).all())


def test_without_an_output_nothing_is_zeroed() -> None:
    _, _, output = _append(0, [0, 2], [0, 0])
    assert bool((output == 9.0).all())


def test_a_position_beyond_the_table_writes_no_page_of_a_request() -> None:
    _, pages, _ = _append(1, [0, 1], [32, -1])
    assert bool((pages[1:] == 9.0).all())
