# SPDX-License-Identifier: Apache-2.0
"""What others offer for the same work, where it is installed: torch, FlashInfer, mamba_ssm.

Inputs are laid out for them before the clock starts, so only their kernels are timed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch

from build_scripts.gpu_check.cases import PagedInputs, SampleInputs, ScanInputs
from build_scripts.gpu_check.ops import AttentionShape, PagedStep, ScanShape

Work = Callable[[], object]


def torch_sdpa(shape: AttentionShape, inputs: PagedInputs) -> Work | None:
    """scaled_dot_product_attention on gathered, contiguous K and V; only for rows of one length and no window."""
    step = inputs.step
    lengths = step.cu_query_lens.diff().tolist()
    contexts = step.context_lens.tolist()
    if len(set(lengths)) != 1 or len(set(contexts)) != 1 or shape.window:
        return None
    rows, length, total = step.rows, lengths[0], contexts[0] + lengths[0]
    cache = inputs.kv_pages[step.page_table.long()].permute(2, 0, 3, 1, 4, 5).flatten(3, 4)[:, :, :, :total]
    keys, values = cache.contiguous()
    query = inputs.query.unflatten(0, (rows, length)).transpose(1, 2).contiguous()
    at = torch.arange(total - length, total, device=query.device)[:, None]
    mask = torch.arange(total, device=query.device)[None, :] <= at
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(query, keys, values, attn_mask=mask, scale=shape.scale, enable_gqa=True)


def _page_lists(step: PagedStep, page_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Page counts as prefix sums, the pages of all rows one after the other, tokens on each row's last page."""
    totals = step.context_lens + step.cu_query_lens.diff()
    counts = (totals + page_size - 1) // page_size
    pages = torch.cat([row[:count] for row, count in zip(step.page_table, counts.tolist(), strict=True)])
    starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
    return starts, pages.int(), (totals - (counts - 1) * page_size).int()


def flashinfer_paged(shape: AttentionShape, inputs: PagedInputs) -> Work | None:
    """FlashInfer's batch prefill over the very same pages (its layout "HND")."""
    if find_spec("flashinfer") is None or not inputs.query.is_cuda:
        return None
    import flashinfer

    step = inputs.step
    starts, pages, last = _page_lists(step, shape.page_size)
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device=inputs.query.device)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND")
    wrapper.plan(
        step.cu_query_lens, starts, pages, last, shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.page_size,
        causal=True, sm_scale=shape.scale, window_left=shape.window - 1 if shape.window else -1,
        q_data_type=inputs.query.dtype,
    )  # fmt: skip
    return lambda: wrapper.run(inputs.query, inputs.kv_pages)


def mamba_ssm_scan(shape: ScanShape, inputs: ScanInputs) -> Work | None:
    """mamba_ssm's chunk scan from the given states; the convolution is not part of it."""
    if find_spec("mamba_ssm") is None or not inputs.xbc.is_cuda:
        return None
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    inner, bc = shape.num_heads * shape.head_dim, shape.n_groups * shape.state_size
    x, b, c = inputs.xbc.split([inner, bc, bc], dim=-1)
    heads = x.unflatten(-1, (shape.num_heads, -1)).contiguous()
    b, c = (part.unflatten(-1, (shape.n_groups, -1)).contiguous() for part in (b, c))
    decay, weights = -torch.exp(inputs.weights.a_log), inputs.weights
    options: dict[str, Any] = {"dt_bias": weights.dt_bias, "initial_states": inputs.state, "dt_softplus": True}
    return lambda: mamba_chunk_scan_combined(heads, inputs.dt, decay, b, c, 16, D=weights.d, **options)


def torch_argmax(inputs: SampleInputs) -> Work | None:
    """The least that a greedy sampler does."""
    return lambda: inputs.logits.argmax(-1)


def torch_softmax_multinomial(inputs: SampleInputs) -> Work | None:
    """A plain sampler without filters."""
    return lambda: torch.multinomial(torch.softmax(inputs.logits, -1), 1)
