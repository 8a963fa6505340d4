# SPDX-License-Identifier: Apache-2.0
"""Launch geometry: tiles, splits, grids and workspace of every kernel, from shapes that a host knows.

The C++ launchers follow the same formulas (README.md beside this file; tests/plugins/launchers compares); the kernels'
own tests launch through this module. It owns no kernel code, and needs no Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIN_TILE: Final = 16
"""Fewest query rows (tokens x grouped heads) of a tile: the tensor core's own height."""
MAX_TILE: Final = 128
PREFILL_TILE: Final = 128
APPEND_BLOCK: Final = 1024
"""Elements of K (and of V) that one program of append_kv copies."""
MAX_BLOCK_LEN: Final = 16
"""Longest drafter block of shared_kv_attention and mamba2_block_scan."""
MAX_SPLITS: Final = 32
SPLIT_TOKENS: Final = 256
"""A split is not made shorter than this many positions: below it the merge costs more than it hides."""
MAX_SPLIT_PROGRAMS: Final = 512
"""Splitting stops at this many programs (two on each of 256 multiprocessors); bounds the workspace."""
SAMPLE_CHUNK: Final = 2048
"""Logits that one program of sample_scan and sample_pick reads."""
MAX_CHUNKS: Final = 128
"""Chunks of the largest vocabulary, 262144."""

Grid = tuple[int, int, int]


def ceil_div(value: int, unit: int) -> int:
    """The least n with n * unit >= value."""
    return -(-value // unit)


def tile_rows(query_rows: int) -> int:
    """The least power of two that holds `query_rows` (tokens x grouped heads), within MIN_TILE and MAX_TILE."""
    tile = MIN_TILE
    while tile < min(query_rows, MAX_TILE):
        tile *= 2
    return tile


def verify_tiles(group: int, verify_width: int) -> tuple[int, ...]:
    """Tiles an engine needs: one for rows of a single token, one for rows of `verify_width` tokens."""
    return tuple(sorted({tile_rows(group), tile_rows(group * verify_width)}))


def pick_tile(tiles: tuple[int, ...], group: int, longest_query: int) -> int:
    """The least of an engine's tiles that holds rows of `longest_query` tokens, else the greatest."""
    fitting = [tile for tile in tiles if tile // group >= longest_query]
    return min(fitting, default=max(tiles))


def num_splits(rows: int, num_kv_heads: int, longest: int, multiprocessors: int) -> int:
    """Parts into which the key range of each row is cut, so that a few rows fill the GPU.

    Args:
        longest: upper bound of the positions that one row reads: max_pages * page_size, or window + max_query when a
            window makes that less.
    """
    programs = max(1, rows * num_kv_heads)
    wanted = min(2 * multiprocessors, MAX_SPLIT_PROGRAMS) // programs
    return max(1, min(wanted, MAX_SPLITS, ceil_div(longest, SPLIT_TOKENS)))


def longest_range(max_pages: int, page_size: int, window: int, max_query: int) -> int:
    """Upper bound of the positions that one row reads from its pages."""
    whole = max_pages * page_size
    return min(whole, window + max_query) if window else whole


def widest_query(group: int, longest_query: int) -> int:
    """Most query tokens of a row that one tile can hold, whichever tiles are compiled.

    The workspace of verify_attention is sized with it: TensorRT keeps the size from the build, and the library that an
    engine runs with may hold other tiles than the one it was built with.
    """
    return min(MAX_TILE // group, longest_query)


def split_workspace_floats(group: int, max_query: int, head_dim: int) -> int:
    """Float32 elements of partial_out and partial_lse together, whatever `num_splits` gives for any number of rows.

    Rows that are not split write no partial results.
    """
    return MAX_SPLIT_PROGRAMS * group * max_query * (head_dim + 1)


def append_grid(num_tokens: int, num_kv_heads: int, head_dim: int) -> Grid:
    """Grid of append_kv."""
    return num_tokens, ceil_div(num_kv_heads * head_dim, APPEND_BLOCK), 1


def prefill_grid(longest_query: int, group: int, num_kv_heads: int, rows: int) -> Grid:
    """Grid of prefill_attention; `longest_query` is T."""
    return ceil_div(longest_query, PREFILL_TILE // group), num_kv_heads, rows


def sample_chunks(vocab_size: int) -> int:
    """Chunks of one row of logits."""
    return ceil_div(vocab_size, SAMPLE_CHUNK)


def vocab_align(vocab_size: int) -> int:
    """VOCAB_ALIGN of the sample kernels: whether each row of logits starts on 64 bytes, as the first one does."""
    return 16 if vocab_size % 16 == 0 else 1


@dataclass(frozen=True)
class SampleWorkspace:
    """Bytes of the scratch tensors of SampleTokens for K rows of logits, in the order in which they lie.

    Each starts on a multiple of 256 bytes.
    """

    rows: int
    vocab_size: int

    @property
    def tensors(self) -> tuple[tuple[str, int], ...]:
        """Name and bytes of each scratch tensor."""
        chunked = 4 * self.rows * sample_chunks(self.vocab_size)
        names = ("scan_max", "scan_sum", "scan_id", "scan_bad", "pick_score", "pick_id", "pick_logit")
        return (*((name, chunked) for name in names), ("thresholds", 4 * self.rows))

    @property
    def nbytes(self) -> int:
        """Bytes of all together."""
        return sum(ceil_div(nbytes, 256) * 256 for _, nbytes in self.tensors)
