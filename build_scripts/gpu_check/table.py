# SPDX-License-Identifier: Apache-2.0
"""The cases: odd shapes that run small under the interpreter, and sizes of real models for a GPU."""

from __future__ import annotations

from build_scripts.gpu_check.cases import PagedCase, RowOptions, SampleCase, ScanCase, SharedCase
from build_scripts.gpu_check.ops import ScanShape

ODD_PAGED = (
    PagedCase("one row, one token, no context", ((0, 1),), num_heads=2, num_kv_heads=2),
    PagedCase("one head", ((20, 3),), num_heads=1, num_kv_heads=1),
    PagedCase("ragged rows, three heads a group", ((5, 3), (0, 1), (33, 8)), num_heads=6, head_dim=80, padding=2),
    PagedCase("empty rows", ((5, 0), (17, 2), (0, 0), (3, 1), (9, 0)), padding=1),
    PagedCase("only empty rows", ((5, 0), (0, 0)), padding=3),
    PagedCase(
        "eight heads a group, 16 tokens", ((40, 16), (0, 16)), num_heads=8, num_kv_heads=1, head_dim=128, page_size=32,
        verify_width=16,
    ),
    PagedCase("window smaller than a page", ((40, 4), (2, 3), (16, 1)), window=5),
    PagedCase("window of one", ((30, 3),), window=1),
    PagedCase("exactly full pages", ((28, 4), (32, 0), (16, 16), (31, 1)), num_heads=2, page_size=32, verify_width=16),
    PagedCase("every length to 16", tuple((3 * n, n) for n in range(1, 17)), 2, 2, 16, verify_width=16),
    PagedCase("splits, some of them empty", ((130, 2), (3, 1), (260, 5)), 4, 1, 96, 128, splits=5),
    PagedCase("splits and a window", ((300, 4), (90, 2)), 3, 1, 16, 16, window=70, splits=3),
    PagedCase("splits by the rule", ((700, 1),), 2, 1, 16, 64),
    PagedCase("prompt chunks among decode rows", ((0, 70), (25, 1), (37, 40), (90, 3)), 8, 2, 32, 32, padding=4),
    PagedCase("prompt chunk with a window", ((37, 50), (0, 90)), 3, 1, 16, 16, window=20, verify_width=4),
    PagedCase("seven heads a group", ((21, 8), (0, 25)), 7, 1, 16, 16),
    PagedCase("verify width of one", ((12, 1), (0, 9)), 2, 1, 32, 16, verify_width=1),
)  # fmt: skip

ODD_SHARED = (
    SharedCase("one row, no prefix", (0,), block=1, num_heads=2),
    SharedCase("causal", (5, 0, 33), num_heads=6, head_dim=80),
    SharedCase("bidirectional", (5, 0, 33), num_heads=6, causal=False),
    SharedCase("no context", (70, 3), no_context=True),
    SharedCase("no context, bidirectional", (70, 3), no_context=True, causal=False, block=5),
    SharedCase("window smaller than the block", (40, 3), window=3),
    SharedCase("window over the prefix, bidirectional", (40, 9), window=6, causal=False, block=4),
    SharedCase("block of 16, exactly full pages", (32, 64), 16, 8, 1, 128, 32),
    SharedCase("splits", (200, 0, 70), 8, 4, 1, 96, 128, splits=4),
    SharedCase("splits and a window", (300, 20), 6, 3, 1, 16, 16, window=64, splits=3),
    *(SharedCase(f"block of {block}", (10 + block,), block, 2, 1, 16) for block in range(1, 17)),
)

ODD_SCAN = (
    ScanCase("one row, one step", ScanShape(2, 8, 4, 1, 4, 1), rows=1),
    ScanCase("released recipe in small", ScanShape(6, 16, 4, 2, 4, 8)),
    ScanCase("odd sizes", ScanShape(3, 5, 2, 3, 4, 5), rows=3),
    ScanCase("16 steps, wide state", ScanShape(4, 8, 16, 4, 4, 16)),
    ScanCase("state too wide to unroll", ScanShape(2, 16, 128, 1, 4, 5)),
    ScanCase("short conv", ScanShape(4, 8, 8, 1, 2, 6)),
    ScanCase("one tap", ScanShape(2, 8, 4, 2, 1, 3)),
)

_FILTERS = (
    RowOptions(0.7),
    RowOptions(0.0, top_k=5, top_p=0.5),
    RowOptions(1.3, top_k=5, seed=99),
    RowOptions(0.9, top_p=0.6, seed=2**62 + 12345),
    RowOptions(1.0, min_p=0.1, seed=7),
    RowOptions(2.0, top_k=20, top_p=0.8, min_p=0.02, seed=0),
)

ODD_SAMPLE = (
    SampleCase("greedy", (RowOptions(), RowOptions())),
    SampleCase("all options", _FILTERS),
    SampleCase("all options, reduced vocabulary", _FILTERS, offsets=True, vocab_size=777),
    SampleCase("several chunks", _FILTERS, rows_each=1, vocab_size=5000, spread=6.0),
    SampleCase("flat", (RowOptions(1.0), RowOptions(5.0, top_p=0.3)), spread=0.1, vocab_size=3000),
    SampleCase("ties", (RowOptions(), RowOptions()), greatest={0: (9, 400, 7), 1: (999,), 2: (0, 1), 3: (500, 501)}),
    SampleCase("one token", (RowOptions(), RowOptions(1.0, top_p=0.5)), vocab_size=1),
    SampleCase("top-k of everything", (RowOptions(1.0, top_k=40), RowOptions(1.0, top_k=39)), vocab_size=40),
)

GPU_PAGED = (
    PagedCase("decode, 1 row", ((4000, 1),), 32, 8, 128, 64),
    PagedCase("verify, 1 row", ((4000, 8),), 32, 8, 128, 64),
    PagedCase("verify, ragged", tuple((97 * n, n % 9) for n in range(64)), 32, 8, 128, 64, padding=5),
    PagedCase("verify, three heads a group", ((2000, 8), (31, 2)), 9, 3, 64, 16),
    PagedCase("decode, window", ((9000, 1), (100, 8)), 32, 8, 128, 128, window=2048),
    PagedCase("prompts", ((0, 700), (500, 333), (1000, 1)), 32, 8, 128, 64),
    PagedCase("prompts, window", ((0, 900), (3000, 200)), 8, 1, 96, 32, window=512),
    PagedCase("head size 80", ((1000, 8), (0, 200)), 32, 32, 80, 64),
)

GPU_SHARED = (
    SharedCase("released recipe", tuple(61 * n for n in range(32)), 8, 32, 8, 128, 64, window=2048),
    SharedCase("long, one row", (20000,), 8, 32, 8, 128, 64, window=2048),
    SharedCase("full attention", (3000, 17), 16, 16, 8, 128, 32, causal=False),
)

GPU_SCAN = (
    ScanCase("8B", ScanShape(48, 64, 4, 4, 4, 8), rows=32),
    ScanCase("4B", ScanShape(44, 64, 4, 4, 4, 8), rows=1),
    ScanCase("wide state", ScanShape(24, 64, 128, 1, 4, 16), rows=3),
)

GPU_SAMPLE = (
    SampleCase("Qwen3", _FILTERS, rows_each=8, vocab_size=151936),
    SampleCase("Llama-3.1", _FILTERS, rows_each=1, vocab_size=128256, spread=1.0),
    SampleCase("largest vocabulary", _FILTERS, rows_each=1, vocab_size=262144),
    SampleCase("not a multiple of 16", _FILTERS, rows_each=3, vocab_size=50257),
)
