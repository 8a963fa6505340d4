# SPDX-License-Identifier: Apache-2.0
"""Random inputs of the custom ops at chosen shapes, with poison wherever a kernel has no business reading.

It owns what a valid step looks like in memory (pages shuffled, rows packed, padding at the end). It knows no kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from build_scripts.gpu_check.ops import AttentionShape, PagedStep, SamplingOptions, ScanShape, ScanWeights

POISON = float("nan")


@dataclass(frozen=True)
class Place:
    """Where tensors are made, in which type, and from which seed."""

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    seed: int = 0

    def generator(self) -> torch.Generator:
        """A fresh generator on the device."""
        return torch.Generator(self.device).manual_seed(self.seed)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """To the device, floats to the type."""
        return tensor.to(self.device, self.dtype) if tensor.is_floating_point() else tensor.to(self.device)


@dataclass(frozen=True)
class PagedCase:
    """Rows of (context length, query length), and the attributes of PagedAttention.

    Attributes:
        padding: packed tokens beyond the last row.
        splits: forced number of splits; None takes the launcher's rule.
    """

    name: str
    rows: tuple[tuple[int, int], ...]
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    page_size: int = 16
    window: int = 0
    padding: int = 0
    verify_width: int = 8
    splits: int | None = None

    @property
    def shape(self) -> AttentionShape:
        """Attributes of the op."""
        scale = self.head_dim**-0.5
        return AttentionShape(self.num_heads, self.num_kv_heads, self.head_dim, self.page_size, scale, self.window)


@dataclass(frozen=True)
class PagedInputs:
    """Inputs of PagedAttention."""

    step: PagedStep
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    kv_pages: torch.Tensor


def _normal(generator: torch.Generator, *size: int) -> torch.Tensor:
    return torch.randn(*size, generator=generator, device=generator.device)


def _page_table(lengths: list[int], page_size: int, generator: torch.Generator) -> tuple[torch.Tensor, int]:
    """Pages of each row, shuffled, unused entries 0; and the pages of the pool, of which every third is no row's."""
    counts = [-(-length // page_size) for length in lengths]
    pool = sum(counts) + sum(counts) // 3 + 2
    free = (torch.randperm(pool - 1, generator=generator, device=generator.device) + 1).tolist()
    table = torch.zeros(len(lengths), max([1, *counts]), dtype=torch.int32)
    for row, count in enumerate(counts):
        table[row, :count] = torch.tensor([free.pop() for _ in range(count)], dtype=torch.int32)
    return table, pool


def _filled_pages(
    table: torch.Tensor, pool: int, lengths: list[int], shape: AttentionShape, generator: torch.Generator, poison: float
) -> torch.Tensor:
    """Pages with random K and V at the committed positions of each row, and poison everywhere else."""
    committed = torch.zeros(pool, shape.page_size, dtype=torch.bool)
    for row, length in enumerate(lengths):
        at = torch.arange(length)
        committed[table[row, at // shape.page_size].long(), at % shape.page_size] = True
    committed = committed.to(generator.device)[:, None, None, :, None]
    pages = _normal(generator, pool, 2, shape.num_kv_heads, shape.page_size, shape.head_dim)
    return pages.masked_fill_(~committed, poison)


def _packed(rows: tuple[tuple[int, int], ...], padding: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """token_rows, token_positions and query_slots of packed rows."""
    token_rows = [row for row, (_, length) in enumerate(rows) for _ in range(length)] + [len(rows)] * padding
    positions = [context + t for context, length in rows for t in range(length)] + [0] * padding
    longest, start = max(1, *(length for _, length in rows)), 0
    slots = torch.zeros(len(rows), longest, dtype=torch.int32)
    for row, (_, length) in enumerate(rows):
        slots[row, :length] = torch.arange(start, start + length, dtype=torch.int32)
        start += length
    return torch.tensor(token_rows, dtype=torch.int32), torch.tensor(positions, dtype=torch.int32), slots


def paged_inputs(case: PagedCase, place: Place, poison: float = POISON) -> PagedInputs:
    """Fresh inputs of `case`."""
    generator, shape = place.generator(), case.shape
    contexts, lengths = [c for c, _ in case.rows], [q for _, q in case.rows]
    table, pool = _page_table([c + q for c, q in case.rows], case.page_size, generator)
    token_rows, positions, slots = _packed(case.rows, case.padding)
    tokens = len(token_rows)
    query, key, value = (
        _normal(generator, tokens, heads, case.head_dim)
        for heads in (case.num_heads, case.num_kv_heads, case.num_kv_heads)
    )
    pages = _filled_pages(table, pool, contexts, shape, generator, poison)
    cu_lens = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    step = PagedStep(
        place.put(cu_lens), place.put(torch.tensor(contexts, dtype=torch.int32)), place.put(table),
        place.put(token_rows), place.put(positions), place.put(slots),
    )  # fmt: skip
    return PagedInputs(step, *(place.put(tensor) for tensor in (query, key, value, pages)))


@dataclass(frozen=True)
class SharedCase:
    """Prefix length of each row, and the attributes of SharedKvAttention."""

    name: str
    prefixes: tuple[int, ...]
    block: int = 8
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    page_size: int = 16
    window: int = 0
    causal: bool = True
    no_context: bool = False
    splits: int | None = None

    @property
    def shape(self) -> AttentionShape:
        """Attributes of the op."""
        scale = self.head_dim**-0.5
        return AttentionShape(self.num_heads, self.num_kv_heads, self.head_dim, self.page_size, scale, self.window)


@dataclass(frozen=True)
class SharedInputs:
    """Inputs of SharedKvAttention."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    kv_pages: torch.Tensor
    page_table: torch.Tensor
    prefix_lens: torch.Tensor


def shared_inputs(case: SharedCase, place: Place, poison: float = POISON) -> SharedInputs:
    """Fresh inputs of `case`; with no_context every page is poison."""
    generator, rows = place.generator(), len(case.prefixes)
    table, pool = _page_table(list(case.prefixes), case.page_size, generator)
    query, key, value = (
        _normal(generator, rows, case.block, heads, case.head_dim)
        for heads in (case.num_heads, case.num_kv_heads, case.num_kv_heads)
    )
    lengths = [0] * rows if case.no_context else list(case.prefixes)
    pages = _filled_pages(table, pool, lengths, case.shape, generator, poison)
    prefixes = torch.tensor(case.prefixes, dtype=torch.int32)
    return SharedInputs(*(place.put(tensor) for tensor in (query, key, value, pages, table, prefixes)))


@dataclass(frozen=True)
class ScanCase:
    """Rows, and the attributes of Mamba2BlockScan."""

    name: str
    shape: ScanShape
    rows: int = 2


@dataclass(frozen=True)
class ScanInputs:
    """Inputs of Mamba2BlockScan."""

    xbc: torch.Tensor
    dt: torch.Tensor
    weights: ScanWeights
    state: torch.Tensor


def scan_inputs(case: ScanCase, place: Place) -> ScanInputs:
    """Fresh inputs of `case`; a few steps are so long or so short that softplus is at its ends."""
    generator, shape = place.generator(), case.shape
    conv_dim = shape.num_heads * shape.head_dim + 2 * shape.n_groups * shape.state_size

    def normal(*size: int) -> torch.Tensor:
        return _normal(generator, *size)

    dt = normal(case.rows, shape.block_size, shape.num_heads)
    dt[..., 0] *= 20.0
    per_head = torch.arange(1, shape.num_heads + 1).float()
    weights = ScanWeights(
        place.put(normal(conv_dim, 1, shape.conv_kernel)), place.put(normal(conv_dim)),
        normal(shape.num_heads).to(place.device), torch.log(per_head).to(place.device),
        normal(shape.num_heads).to(place.device),
    )  # fmt: skip
    state = normal(case.rows, shape.num_heads, shape.head_dim, shape.state_size).to(place.device)
    xbc = place.put(normal(case.rows, shape.block_size, conv_dim))
    return ScanInputs(xbc, place.put(dt), weights, state)


@dataclass(frozen=True)
class RowOptions:
    """Sampling options of one request."""

    temperature: float = 0.0
    top_p: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    seed: int = 1


@dataclass(frozen=True)
class SampleCase:
    """Options of each request, how many rows of logits each has, and the vocabulary.

    Attributes:
        spread: standard deviation of the logits.
        offsets: whether token ids are those of a reduced vocabulary (token_ids[v] > v).
    """

    name: str
    options: tuple[RowOptions, ...]
    rows_each: int = 2
    vocab_size: int = 1000
    spread: float = 3.0
    offsets: bool = False
    greatest: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Rows of logits to columns that all get the greatest logit: ties."""


@dataclass(frozen=True)
class SampleInputs:
    """Inputs of SampleTokens."""

    logits: torch.Tensor
    token_ids: torch.Tensor
    row_ids: torch.Tensor
    positions: torch.Tensor
    options: SamplingOptions


def sample_inputs(case: SampleCase, place: Place) -> SampleInputs:
    """Fresh inputs of `case`; logits float32."""
    generator, requests = place.generator(), len(case.options)
    rows = requests * case.rows_each
    logits = _normal(generator, rows, case.vocab_size) * case.spread
    for row, columns in case.greatest.items():
        logits[row, list(columns)] = logits[row].max() + 0.5
    token_ids = torch.arange(case.vocab_size, dtype=torch.int32)
    if case.offsets:
        steps = torch.randint(1, 6, (case.vocab_size,), generator=generator, device=place.device)
        token_ids = steps.cumsum(0).int()
    row_ids = torch.arange(requests, dtype=torch.int32).repeat_interleave(case.rows_each)
    positions = torch.randint(0, 1 << 20, (rows,), generator=generator, device=place.device).int()

    def column(name: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([getattr(options, name) for options in case.options], dtype=dtype, device=place.device)

    options = SamplingOptions(
        column("temperature", torch.float32), column("top_p", torch.float32), column("min_p", torch.float32),
        column("top_k", torch.int32), column("seed", torch.int64),
    )  # fmt: skip
    device = place.device
    return SampleInputs(logits.to(device), token_ids.to(device), row_ids.to(device), positions.to(device), options)
