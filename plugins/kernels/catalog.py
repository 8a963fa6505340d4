# SPDX-License-Identifier: Apache-2.0
"""Every GPU kernel: its arguments in order, and the integers that tell one compiled variant from another.

This table is the only place where a kernel's binary interface is written. The C++ argument structs and the table of
compiled variants are generated from it, the compiler takes its signatures from it, and the tests launch kernels
through it. It owns no kernel code, and needs no Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ENGINE_DTYPES: Final = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
"""Type of the engine (a name of `hspec_trt.dtypes`) to Triton's spelling."""

COMPILED_DTYPES: Final = ("float16", "bfloat16")
"""Types that are compiled for GPUs; float32 exists for the interpreter only."""

ARG_TYPES: Final = ("*T", "*f32", "*i32", "*i64", "*u8", "i32", "f32")
"""``*T`` points to the engine's type; every pointer is at least 16-byte aligned."""


@dataclass(frozen=True)
class Arg:
    """One run-time argument of a kernel."""

    name: str
    type: str
    doc: str


@dataclass(frozen=True)
class KernelSpec:
    """One kernel.

    Attributes:
        name: of the Triton function and of the symbol in the compiled code.
        module: under ``plugins.kernels``.
        args: run-time arguments in order.
        key: constants of a variant, in order; upper-case parameters of the Triton function.
        typed: whether a variant belongs to one engine type.
        num_warps, num_stages: launch width (32 threads a warp) and depth of the software pipeline.
    """

    name: str
    module: str
    args: tuple[Arg, ...]
    key: tuple[str, ...]
    typed: bool = True
    num_warps: int = 4
    num_stages: int = 2


def _args(text: str) -> tuple[Arg, ...]:
    rows = (line.split(None, 2) for line in text.splitlines() if line.strip())
    return tuple(Arg(name, type_, doc) for name, type_, doc in rows)


APPEND_KV: Final = KernelSpec(
    "append_kv",
    "append_kv",
    _args("""
        key              *T    [N, num_kv_heads, HEAD_DIM]
        value            *T    [N, num_kv_heads, HEAD_DIM]
        kv_pages         *T    [P, 2, num_kv_heads, PAGE_SIZE, HEAD_DIM], written
        page_table       *i32  [R, max_pages]
        token_rows       *i32  [N], R for padding
        token_positions  *i32  [N]
        output           *T    [N, num_kv_heads * GROUP, HEAD_DIM], zeroed for padding tokens only
        num_rows         i32   R
        max_pages        i32   M
        num_kv_heads     i32   K/V heads
    """),
    key=("HEAD_DIM", "GROUP", "PAGE_SIZE"),
    num_stages=1,
)

_PAGED_QUERY: Final = """
        query            *T    [N, num_kv_heads * GROUP, HEAD_DIM]
        kv_pages         *T    [P, 2, num_kv_heads, PAGE_SIZE, HEAD_DIM]
        cu_query_lens    *i32  [R + 1]
        context_lens     *i32  [R]
        page_table       *i32  [R, max_pages]
        output           *T    [N, num_kv_heads * GROUP, HEAD_DIM], written
"""

VERIFY_ATTENTION: Final = KernelSpec(
    "verify_attention",
    "verify_attention",
    _args(
        _PAGED_QUERY
        + """
        partial_out      *f32  [R, max_query, num_kv_heads * GROUP, splits, HEAD_DIM], written when splits > 1
        partial_lse      *f32  [R, max_query, num_kv_heads * GROUP, splits], written when splits > 1
        scale            f32   factor of the scores
        window           i32   0 for none
        max_pages        i32   M
        max_query        i32   rows with more query tokens are skipped; at most TILE // GROUP
    """
    ),
    key=("HEAD_DIM", "GROUP", "PAGE_SIZE", "TILE"),
)

PREFILL_ATTENTION: Final = KernelSpec(
    "prefill_attention",
    "prefill_attention",
    _args(
        _PAGED_QUERY
        + """
        scale            f32   factor of the scores
        window           i32   0 for none
        max_pages        i32   M
        min_query        i32   rows with fewer query tokens are skipped
    """
    ),
    key=("HEAD_DIM", "GROUP", "PAGE_SIZE"),
    num_warps=8,
)

SHARED_KV_ATTENTION: Final = KernelSpec(
    "shared_kv_attention",
    "shared_kv_attention",
    _args("""
        query            *T    [D, block_len, num_kv_heads * GROUP, HEAD_DIM]
        key              *T    [D, block_len, num_kv_heads, HEAD_DIM]
        value            *T    [D, block_len, num_kv_heads, HEAD_DIM]
        kv_pages         *T    [P, 2, num_kv_heads, PAGE_SIZE, HEAD_DIM], only read
        page_table       *i32  [D, max_pages]
        prefix_lens      *i32  [D]
        output           *T    [D, block_len, num_kv_heads * GROUP, HEAD_DIM], written
        partial_out      *f32  [D, block_len, num_kv_heads * GROUP, splits, HEAD_DIM], written when splits > 1
        partial_lse      *f32  [D, block_len, num_kv_heads * GROUP, splits], written when splits > 1
        scale            f32   factor of the scores
        window           i32   0 for none
        max_pages        i32   M
        block_len        i32   B, at most TILE // GROUP and at most 16
    """),
    key=("HEAD_DIM", "GROUP", "PAGE_SIZE", "TILE", "CAUSAL", "NO_CONTEXT"),
)

MERGE_SPLITS: Final = KernelSpec(
    "merge_splits",
    "merge_splits",
    _args("""
        partial_out      *f32  [R, max_query, num_heads, splits, HEAD_DIM]
        partial_lse      *f32  [R, max_query, num_heads, splits]
        cu_query_lens    *i32  [R + 1]; not read when PACKED is 0
        output           *T    [N, num_heads, HEAD_DIM], written
        max_query        i32   as given to the attention kernel (block_len when PACKED is 0)
        splits           i32   as given to the attention kernel, 2 to 32
    """),
    key=("HEAD_DIM", "PACKED"),
    num_warps=4,
    num_stages=1,
)

MAMBA2_BLOCK_SCAN: Final = KernelSpec(
    "mamba2_block_scan",
    "mamba2_block_scan",
    _args("""
        xbc              *T    [D, BLOCK_LEN, NUM_HEADS * HEAD_DIM + 2 * NUM_GROUPS * STATE_SIZE]
        dt               *T    [D, BLOCK_LEN, NUM_HEADS]
        conv_weight      *T    [conv_dim, 1, CONV_KERNEL]
        conv_bias        *T    [conv_dim]
        dt_bias          *f32  [NUM_HEADS]
        a_log            *f32  [NUM_HEADS]
        d                *f32  [NUM_HEADS]
        state            *f32  [D, NUM_HEADS, HEAD_DIM, STATE_SIZE], only read
        output           *T    [D, BLOCK_LEN, NUM_HEADS * HEAD_DIM], written
    """),
    key=("NUM_HEADS", "HEAD_DIM", "STATE_SIZE", "NUM_GROUPS", "CONV_KERNEL", "BLOCK_LEN"),
    num_warps=2,
    num_stages=1,
)

SAMPLE_SCAN: Final = KernelSpec(
    "sample_scan",
    "sample_scan",
    _args("""
        logits           *f32  [K, vocab_size]
        token_ids        *i32  [vocab_size]
        scan_max         *f32  [K, chunks], written: greatest logit of the chunk
        scan_sum         *f32  [K, chunks], written: sum of exp(logit - scan_max)
        scan_id          *i32  [K, chunks], written: lowest id with the greatest logit
        scan_bad         *i32  [K, chunks], written: count of logits that are not finite
        vocab_size       i32   V
    """),
    key=("VOCAB_ALIGN",),
    typed=False,
)

SAMPLE_FILTER: Final = KernelSpec(
    "sample_filter",
    "sample_filter",
    _args("""
        logits           *f32  [K, vocab_size]
        row_ids          *i32  [K]
        temperature      *f32  [R]
        top_p            *f32  [R]
        min_p            *f32  [R]
        top_k            *i32  [R]
        scan_max         *f32  [K, chunks]
        thresholds       *f32  [K], written: tokens whose z is below are out
        vocab_size       i32   V
        num_rows         i32   R
    """),
    key=("VOCAB_ALIGN",),
    typed=False,
    num_warps=16,
)

SAMPLE_PICK: Final = KernelSpec(
    "sample_pick",
    "sample_pick",
    _args("""
        logits           *f32  [K, vocab_size]
        token_ids        *i32  [vocab_size]
        row_ids          *i32  [K]
        positions        *i32  [K]
        temperature      *f32  [R]
        seed             *i64  [R]
        scan_max         *f32  [K, chunks]
        thresholds       *f32  [K]
        pick_score       *f32  [K, chunks], written: best z + noise of the chunk
        pick_id          *i32  [K, chunks], written: its token id
        pick_logit       *f32  [K, chunks], written: its logit
        vocab_size       i32   V
        num_rows         i32   R
    """),
    key=("VOCAB_ALIGN",),
    typed=False,
    num_warps=8,
)

SAMPLE_FINISH: Final = KernelSpec(
    "sample_finish",
    "sample_finish",
    _args("""
        row_ids          *i32  [K]
        temperature      *f32  [R]
        scan_max         *f32  [K, chunks]
        scan_sum         *f32  [K, chunks]
        scan_id          *i32  [K, chunks]
        scan_bad         *i32  [K, chunks]
        pick_score       *f32  [K, chunks]
        pick_id          *i32  [K, chunks]
        pick_logit       *f32  [K, chunks]
        ids              *i32  [K], written
        logprobs         *f32  [K], written
        finite           *u8   [K], written: 0 or 1
        num_rows         i32   R
        chunks           i32   chunks of a row of logits
    """),
    key=(),
    typed=False,
    num_warps=4,
    num_stages=1,
)

KERNELS: Final = {
    spec.name: spec
    for spec in (
        APPEND_KV,
        VERIFY_ATTENTION,
        PREFILL_ATTENTION,
        SHARED_KV_ATTENTION,
        MERGE_SPLITS,
        MAMBA2_BLOCK_SCAN,
        SAMPLE_SCAN,
        SAMPLE_FILTER,
        SAMPLE_PICK,
        SAMPLE_FINISH,
    )
}
