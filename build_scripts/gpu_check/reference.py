# SPDX-License-Identifier: Apache-2.0
"""Plain float64 versions of the custom ops, row by row, and the same evaluated in the engine's own type.

Plainer than the kernels on purpose: no tiles, no splits, no online softmax. Knows no Triton.
"""

from __future__ import annotations

import torch

from build_scripts.gpu_check.ops import AttentionShape, PagedStep, SamplingOptions, ScanShape, ScanWeights
from hspec_trt.contract import FILTER_FLOOR, NOISE_C1, NOISE_C2, NOISE_C3, NOISE_PRIME, NOISE_UNIT


def _row_cache(pages: torch.Tensor, page_row: torch.Tensor, length: int) -> torch.Tensor:
    """K and V [2, kv_heads, length, head_dim] of one row."""
    page_size = pages.shape[3]
    used = pages[page_row[: -(-length // page_size)].long()]
    return used.permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :length]


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, visible: torch.Tensor, scale: float
) -> torch.Tensor:
    """query [T, heads, d], keys and values [kv_heads, S, d], visible bool [T, S] -> [T, heads, d], in their type."""
    group = query.shape[1] // keys.shape[0]
    keys, values = keys.repeat_interleave(group, 0), values.repeat_interleave(group, 0)
    scores = torch.einsum("thd,hsd->hts", query, keys) * scale
    weights = torch.softmax(scores.masked_fill(~visible, float("-inf")), dim=-1)
    return torch.einsum("hts,hsd->thd", weights, values)


def paged_attention(
    shape: AttentionShape, step: PagedStep, query: torch.Tensor, pages: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Attention over pages that already hold this step's K and V; zeros for padding tokens.

    Args:
        dtype: the type of all arithmetic.
    """
    output = torch.zeros(query.shape, dtype=dtype, device=query.device)
    starts, contexts = step.cu_query_lens.tolist(), step.context_lens.tolist()
    for row, context in enumerate(contexts):
        begin, end = starts[row], starts[row + 1]
        if begin == end:
            continue
        length = context + end - begin
        keys, values = _row_cache(pages, step.page_table[row], length).to(dtype)
        at = torch.arange(context, length, device=query.device)[:, None]
        key_at = torch.arange(length, device=query.device)[None, :]
        visible = key_at <= at
        if shape.window:
            visible &= key_at > at - shape.window
        output[begin:end] = attend(query[begin:end].to(dtype), keys, values, visible, shape.scale)
    return output


def shared_kv_attention(
    shape: AttentionShape,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    pages: torch.Tensor,
    page_table: torch.Tensor,
    prefix_lens: torch.Tensor,
    *,
    causal: bool,
    no_context: bool,
    dtype: torch.dtype,
) -> torch.Tensor:
    """query [D, B, heads, d] -> the same; slot k sits at position prefix + k."""
    output = torch.empty(query.shape, dtype=dtype, device=query.device)
    block = query.shape[1]
    for row, whole_prefix in enumerate(prefix_lens.tolist()):
        prefix = 0 if no_context else whole_prefix
        context = _row_cache(pages, page_table[row], prefix).to(dtype)
        own = torch.stack([key[row], value[row]]).transpose(1, 2).to(dtype)
        keys, values = torch.cat([context, own], dim=2)
        slot = torch.arange(block, device=query.device)[:, None]
        key_at = torch.arange(-prefix, block, device=query.device)[None, :]  # relative to the prefix
        visible = (
            (key_at <= slot) if causal else torch.ones(block, prefix + block, dtype=torch.bool, device=query.device)
        )
        if shape.window:
            visible = visible & (key_at > slot - shape.window)
        output[row] = attend(query[row].to(dtype), keys, values, visible, shape.scale)
    return output


def mamba2_block_scan(
    shape: ScanShape, xbc: torch.Tensor, dt: torch.Tensor, weights: ScanWeights, state: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """The recurrence step by step: xbc [D, B, conv_dim] -> [D, B, num_heads * head_dim]."""
    taps, inner, bc = shape.conv_kernel, shape.num_heads * shape.head_dim, shape.n_groups * shape.state_size
    padded = torch.nn.functional.pad(xbc.to(dtype), (0, 0, taps - 1, 0))
    conv_weight = weights.conv_weight.to(dtype)[:, 0, :]
    steps = range(xbc.shape[1])
    window = torch.stack([padded[:, step : step + taps] for step in steps], dim=1)  # [D, B, taps, conv_dim]
    mixed = torch.einsum("dbkc,ck->dbc", window, conv_weight) + weights.conv_bias.to(dtype)
    mixed = mixed * torch.sigmoid(mixed)
    x = mixed[..., :inner].unflatten(-1, (shape.num_heads, shape.head_dim))
    per_group = shape.num_heads // shape.n_groups
    parts = mixed[..., inner:].split(bc, dim=-1)
    b, c = (p.unflatten(-1, (shape.n_groups, -1)).repeat_interleave(per_group, 2) for p in parts)
    raw = dt.to(dtype) + weights.dt_bias.to(dtype)
    delta = torch.logaddexp(raw, torch.zeros_like(raw))
    decay = torch.exp(-torch.exp(weights.a_log.to(dtype)) * delta)  # [D, B, h]
    s, outputs = state.to(dtype), []
    for t in steps:
        grown = (delta[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None, :]
        s = decay[:, t, :, None, None] * s + grown
        outputs.append((s * c[:, t, :, None, :]).sum(-1) + weights.d.to(dtype)[:, None] * x[:, t])
    return torch.stack(outputs, dim=1).flatten(2)


def _cube(x: int) -> int:
    return pow(x, 3, NOISE_PRIME)


def noise_words(seed: int, position: int, token_ids: torch.Tensor) -> torch.Tensor:
    """The integer x of the noise for each token id, int64; by Python's own integers per row, 64-bit ones per token."""
    k = _cube((seed % NOISE_PRIME + NOISE_C1) % NOISE_PRIME)
    k = _cube((k + seed // 65536 % NOISE_PRIME + NOISE_C2) % NOISE_PRIME)
    k = _cube((k + position + NOISE_C3) % NOISE_PRIME)
    m = _cube((k + NOISE_C1) % NOISE_PRIME)
    shift = _cube((m + NOISE_C2) % NOISE_PRIME)

    def cube(x: torch.Tensor) -> torch.Tensor:
        return x * x % NOISE_PRIME * x % NOISE_PRIME

    x = cube((token_ids.long() * (m + 1) + k) % NOISE_PRIME)
    return cube((x + shift) % NOISE_PRIME)


def gumbel(words: torch.Tensor) -> torch.Tensor:
    """Gumbel noise, float64."""
    u = ((words // 256).double() + 0.5) * NOISE_UNIT
    return -torch.log(-torch.log(u))


def allowed_tokens(z: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """Which tokens the filters leave, by sorting; z float64 [V], bool [V]. Ties at an edge stay in."""
    ordered = torch.sort(z, descending=True).values
    threshold = torch.tensor(FILTER_FLOOR if top_k or top_p < 1 else float("-inf"), dtype=z.dtype, device=z.device)
    if top_k:
        threshold = torch.maximum(threshold, ordered[min(top_k, len(ordered)) - 1])
    if top_p < 1:
        mass = torch.exp(ordered[ordered >= threshold]).cumsum(0)
        threshold = torch.maximum(threshold, ordered[int((mass < top_p * mass[-1]).sum())])
    if min_p:
        threshold = torch.maximum(threshold, torch.log(torch.tensor(min_p, dtype=z.dtype, device=z.device)))
    return z >= threshold


def sample_scores(
    logits: torch.Tensor, token_ids: torch.Tensor, row: int, position: int, options: SamplingOptions
) -> torch.Tensor:
    """float64 [V]: what the drawn token has most of; `row` of the options."""
    temperature = float(options.temperature[row])
    shifted = logits.double() - logits.double().max()
    if temperature == 0:
        return shifted
    z = shifted / temperature
    kept = allowed_tokens(z, int(options.top_k[row]), float(options.top_p[row]), float(options.min_p[row]))
    scores = z + gumbel(noise_words(int(options.seed[row]), position, token_ids))
    return scores.masked_fill(~kept, float("-inf"))
