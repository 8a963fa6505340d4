# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.gpu_kernels` times, and the least bytes that each must move. Shapes are those of released models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import gpu_kernels_peers as peers
from build_scripts.gpu_check.cases import (
    PagedCase,
    Place,
    RowOptions,
    SampleCase,
    ScanCase,
    SharedCase,
    paged_inputs,
    sample_inputs,
    scan_inputs,
    shared_inputs,
)
from build_scripts.gpu_check.ops import AttentionShape, Ops, ScanShape

FINITE = 0.0


@dataclass(frozen=True)
class Subject:
    """One op at one size: our kernels, and what others offer."""

    name: str
    nbytes: int
    ours: Callable[[], object]
    peers: dict[str, Callable[[], object] | None]


def _rows(count: int, context: int, queries: int) -> tuple[tuple[int, int], ...]:
    return ((context, queries),) * count


def paged(small: bool) -> list[PagedCase]:
    """Attention of the target: Qwen3-8B's heads."""
    if small:
        return [PagedCase("2 rows x 2 tokens at 40", _rows(2, 40, 2), 2, 1, 16, 16)]
    sizes = ((1, 4096, 1), (1, 4096, 8), (16, 4096, 8), (64, 2048, 1), (64, 2048, 8), (1, 0, 2048), (4, 2048, 512))
    return [
        PagedCase(f"{rows} rows x {queries} tokens at {context}", _rows(rows, context, queries), 32, 8, 128, 64)
        for rows, context, queries in sizes
    ]


def shared(small: bool) -> list[SharedCase]:
    """Attention of a draft sub-layer, window of the released recipe."""
    if small:
        return [SharedCase("2 rows at 40", (40, 40), 4, 2, 1, 16, 16)]
    return [
        SharedCase(f"{rows} rows at {prefix}", (prefix,) * rows, 8, 32, 8, 128, 64, window=2048)
        for rows, prefix in ((1, 4096), (16, 4096), (64, 2048))
    ]


def scans(small: bool) -> list[ScanCase]:
    """Scan of one draft sub-layer."""
    if small:
        return [ScanCase("2 rows", ScanShape(2, 8, 4, 1, 4, 2))]
    return [ScanCase(f"{rows} rows", ScanShape(48, 64, 4, 4, 4, 8), rows=rows) for rows in (1, 16, 64)]


def samples(small: bool) -> list[SampleCase]:
    """Sampler over the target's vocabulary."""
    kinds = {
        "greedy": RowOptions(),
        "temperature": RowOptions(0.8),
        "top-k and top-p": RowOptions(0.8, top_k=50, top_p=0.9),
    }
    sizes = ((1, 64),) if small else ((8, 151_936), (64, 151_936))
    return [
        SampleCase(f"{rows} rows of {vocab}, {name}", (options,), rows, vocab)
        for rows, vocab in sizes
        for name, options in kinds.items()
    ]


def attention_bytes(shape: AttentionShape, keys: int, queries: int, itemsize: int) -> int:
    """K and V of `keys` positions once, and Q and the output of `queries` tokens."""
    return itemsize * shape.head_dim * (2 * shape.num_kv_heads * keys + 2 * shape.num_heads * queries)


def _keys_in_range(context: int, queries: int, window: int) -> int:
    total = context + queries
    return min(total, window + queries - 1) if window else total


def paged_subject(ops: Ops, case: PagedCase, place: Place) -> Subject:
    """PagedAttention with its append; also counts the new K and V, read and written."""
    inputs = paged_inputs(case, place, poison=FINITE)
    keys = sum(_keys_in_range(context, queries, case.window) for context, queries in case.rows)
    tokens = sum(queries for _, queries in case.rows)
    itemsize = inputs.query.itemsize
    appended = 4 * itemsize * case.num_kv_heads * case.head_dim * tokens
    heads = (inputs.query, inputs.key, inputs.value, inputs.kv_pages)
    return Subject(
        f"PagedAttention {case.name}",
        attention_bytes(case.shape, keys, tokens, itemsize) + appended,
        lambda: ops.paged_attention(case.shape, inputs.step, *heads, verify_width=case.verify_width),
        {
            "torch SDPA": peers.torch_sdpa(case.shape, inputs),
            "FlashInfer": peers.flashinfer_paged(case.shape, inputs),
        },
    )


def shared_subject(ops: Ops, case: SharedCase, place: Place) -> Subject:
    """SharedKvAttention; also counts the block's own K and V."""
    inputs = shared_inputs(case, place, poison=FINITE)
    keys = sum(_keys_in_range(prefix, case.block, case.window) for prefix in case.prefixes)
    tensors = (inputs.query, inputs.key, inputs.value, inputs.kv_pages, inputs.page_table, inputs.prefix_lens)
    nbytes = attention_bytes(case.shape, keys, len(case.prefixes) * case.block, inputs.query.itemsize)

    def ours() -> object:
        return ops.shared_kv_attention(case.shape, *tensors, causal=case.causal, no_context=case.no_context)

    return Subject(f"SharedKvAttention {case.name}", nbytes, ours, {})


def scan_subject(ops: Ops, case: ScanCase, place: Place) -> Subject:
    """Mamba2BlockScan: its inputs and its output once."""
    inputs = scan_inputs(case, place)
    tensors = (inputs.xbc, inputs.dt, inputs.weights, inputs.state)
    outputs = case.rows * case.shape.block_size * case.shape.num_heads * case.shape.head_dim
    read = (inputs.xbc, inputs.dt, inputs.state, *vars(inputs.weights).values())
    nbytes = sum(tensor.nbytes for tensor in read) + outputs * inputs.xbc.itemsize
    return Subject(
        f"Mamba2BlockScan {case.name}",
        nbytes,
        lambda: ops.mamba2_block_scan(case.shape, *tensors),
        {"mamba_ssm, scan alone": peers.mamba_ssm_scan(case.shape, inputs)},
    )


def sample_subject(ops: Ops, case: SampleCase, place: Place) -> Subject:
    """SampleTokens: each logit once."""
    inputs = sample_inputs(case, place)
    tensors = (inputs.logits, inputs.token_ids, inputs.row_ids, inputs.positions, inputs.options)
    greedy = case.options[0].temperature == 0
    name = "torch argmax" if greedy else "torch softmax and multinomial"
    peer = peers.torch_argmax(inputs) if greedy else peers.torch_softmax_multinomial(inputs)
    return Subject(f"SampleTokens {case.name}", inputs.logits.nbytes, lambda: ops.sample_tokens(*tensors), {name: peer})


def subjects(ops: Ops, place: Place, *, small: bool) -> Iterator[Subject]:
    """The table: decode, verification and prompts; draft attention; scan; sampler."""
    yield from (paged_subject(ops, case, place) for case in paged(small))
    yield from (shared_subject(ops, case, place) for case in shared(small))
    yield from (scan_subject(ops, case, place) for case in scans(small))
    yield from (sample_subject(ops, case, place) for case in samples(small))
