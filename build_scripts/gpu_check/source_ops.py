# SPDX-License-Identifier: Apache-2.0
"""The custom ops from the kernels' own sources, launched as a C++ launcher does: tiles, splits, workspace, order.

What runs a single kernel (Triton's interpreter, or its just-in-time compiler) is a `Runner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from build_scripts.gpu_check.ops import AttentionShape, PagedStep, SamplingOptions, ScanShape, ScanWeights
from plugins.kernels import geometry
from plugins.kernels.catalog import KERNELS
from plugins.kernels.variants import Variant

Argument = torch.Tensor | int | float
NO_OUTPUT = 0
"""In place of append_kv's group: there is no attention output to zero, whatever is given for it."""
DTYPE_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}


class Runner(Protocol):
    """Runs one kernel."""

    @property
    def multiprocessors(self) -> int:
        """Of the GPU."""
        ...

    def __call__(self, variant: Variant, grid: geometry.Grid, args: Sequence[Argument]) -> None:
        """Launch `variant` with its run-time arguments in the order of the catalog."""
        ...


def launch(
    run: Runner, kernel: str, dtype: torch.dtype | None, key: Sequence[int], grid: geometry.Grid, /, **args: Argument
) -> None:
    """Launch one kernel with arguments by name; grids with an empty side are left out, as a launcher must."""
    spec = KERNELS[kernel]
    if set(args) != {arg.name for arg in spec.args}:
        raise TypeError(f"{kernel} takes {[arg.name for arg in spec.args]}, got {sorted(args)}")
    if min(grid) < 1:
        return
    variant = Variant(kernel, DTYPE_NAMES[dtype] if dtype else "none", tuple(key))
    run(variant, grid, [args[arg.name] for arg in spec.args])


@dataclass(frozen=True)
class SourceOps:
    """Implements `build_scripts.gpu_check.ops.Ops`.

    Attributes:
        poison: fill outputs and workspace before each launch.
    """

    run: Runner
    poison: bool = True

    def _empty(self, size: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        fresh = torch.empty(tuple(size), dtype=dtype, device=device)
        if self.poison:
            fresh.view(torch.uint8).fill_(0xFF)  # NaN in every floating type, -1 in integers
        return fresh

    def _partials(
        self, like: torch.Tensor, shape: AttentionShape, rows: int, max_query: int, splits: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """partial_out and partial_lse; checked against the size that a plugin would be given."""
        slots = rows * max_query * shape.num_heads * splits if splits > 1 else 1
        given = geometry.split_workspace_floats(shape.group, max_query, shape.head_dim)
        if slots * (shape.head_dim + 1) > given:
            raise AssertionError(f"workspace formula gives {given} floats, {slots * (shape.head_dim + 1)} are used")
        out, lse = ([slots * width] for width in (shape.head_dim, 1))
        return self._empty(out, torch.float32, like.device), self._empty(lse, torch.float32, like.device)

    def _sample_workspace(self, rows: int, vocab_size: int, device: torch.device) -> dict[str, torch.Tensor]:
        types = {"scan_id": torch.int32, "scan_bad": torch.int32, "pick_id": torch.int32}
        plan = geometry.SampleWorkspace(rows, vocab_size)
        buffer = self._empty([plan.nbytes], torch.uint8, device)
        offset, tensors = 0, {}
        for name, nbytes in plan.tensors:
            tensors[name] = buffer[offset : offset + nbytes].view(types.get(name, torch.float32))
            offset += geometry.ceil_div(nbytes, 256) * 256
        return tensors

    def paged_attention(
        self,
        shape: AttentionShape,
        step: PagedStep,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_pages: torch.Tensor,
        *,
        verify_width: int,
        splits: int | None = None,
    ) -> torch.Tensor:
        """PagedAttention: query [N, num_heads, head_dim] -> the same; `kv_pages` is updated in place.

        Args:
            verify_width: tokens of the longest row that the engine verifies (drafts + 1).
            splits: forced number of splits; None takes the launcher's own rule.
        """
        output = self._empty(query.shape, query.dtype, query.device)
        max_pages = int(step.page_table.shape[1])
        pages: dict[str, Argument] = {
            "kv_pages": kv_pages,
            "page_table": step.page_table,
            "max_pages": max_pages,
            "output": output,
        }
        base = (shape.head_dim, shape.group, shape.page_size)
        launch(
            self.run, "append_kv", query.dtype, base,
            geometry.append_grid(query.shape[0], shape.num_kv_heads, shape.head_dim),
            key=key, value=value, token_rows=step.token_rows, token_positions=step.token_positions,
            num_rows=step.rows, num_kv_heads=shape.num_kv_heads, **pages,
        )  # fmt: skip
        tile = geometry.pick_tile(geometry.verify_tiles(shape.group, verify_width), shape.group, step.longest_query)
        max_query = min(tile // shape.group, step.longest_query)
        longest = geometry.longest_range(max_pages, shape.page_size, shape.window, max_query)
        count = splits or geometry.num_splits(step.rows, shape.num_kv_heads, longest, self.run.multiprocessors)
        out, lse = self._partials(query, shape, step.rows, max_query, count)
        rows: dict[str, Argument] = {"query": query, "scale": shape.scale, "window": shape.window, **pages}
        rows |= {"cu_query_lens": step.cu_query_lens, "context_lens": step.context_lens}
        launch(
            self.run, "verify_attention", query.dtype, (*base, tile), (count, shape.num_kv_heads, step.rows),
            partial_out=out, partial_lse=lse, max_query=max_query, **rows,
        )  # fmt: skip
        if count > 1:
            launch(
                self.run, "merge_splits", query.dtype, (shape.head_dim, 1), (max_query, shape.num_heads, step.rows),
                partial_out=out, partial_lse=lse, cu_query_lens=step.cu_query_lens, output=output,
                max_query=max_query, splits=count,
            )  # fmt: skip
        if step.longest_query > max_query:
            grid = geometry.prefill_grid(step.longest_query, shape.group, shape.num_kv_heads, step.rows)
            launch(self.run, "prefill_attention", query.dtype, base, grid, min_query=max_query + 1, **rows)
        return output

    def append_kv(
        self, shape: AttentionShape, step: PagedStep, key: torch.Tensor, value: torch.Tensor, kv_pages: torch.Tensor
    ) -> None:
        """AppendKv: key, value [N, num_kv_heads, head_dim] go into `kv_pages`."""
        launch(
            self.run, "append_kv", key.dtype, (shape.head_dim, NO_OUTPUT, shape.page_size),
            geometry.append_grid(key.shape[0], shape.num_kv_heads, shape.head_dim),
            key=key, value=value, kv_pages=kv_pages, page_table=step.page_table, token_rows=step.token_rows,
            token_positions=step.token_positions, output=kv_pages, num_rows=step.rows,
            max_pages=int(step.page_table.shape[1]), num_kv_heads=shape.num_kv_heads,
        )  # fmt: skip

    def shared_kv_attention(
        self,
        shape: AttentionShape,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_pages: torch.Tensor,
        page_table: torch.Tensor,
        prefix_lens: torch.Tensor,
        *,
        causal: bool,
        no_context: bool,
        splits: int | None = None,
    ) -> torch.Tensor:
        """SharedKvAttention: query [D, B, num_heads, head_dim] -> the same."""
        output = self._empty(query.shape, query.dtype, query.device)
        rows, block_len = int(query.shape[0]), int(query.shape[1])
        max_pages = int(page_table.shape[1])
        tile = geometry.tile_rows(shape.group * block_len)
        longest = geometry.longest_range(max_pages, shape.page_size, shape.window, block_len)
        count = splits or geometry.num_splits(rows, shape.num_kv_heads, longest, self.run.multiprocessors)
        count = 1 if no_context else count
        out, lse = self._partials(query, shape, rows, block_len, count)
        launch(
            self.run, "shared_kv_attention", query.dtype,
            (shape.head_dim, shape.group, shape.page_size, tile, int(causal), int(no_context)),
            (count, shape.num_kv_heads, rows),
            query=query, key=key, value=value, kv_pages=kv_pages, page_table=page_table, prefix_lens=prefix_lens,
            output=output, partial_out=out, partial_lse=lse, scale=shape.scale, window=shape.window,
            max_pages=max_pages, block_len=block_len,
        )  # fmt: skip
        if count > 1:
            launch(
                self.run, "merge_splits", query.dtype, (shape.head_dim, 0), (block_len, shape.num_heads, rows),
                partial_out=out, partial_lse=lse, cu_query_lens=prefix_lens, output=output,
                max_query=block_len, splits=count,
            )  # fmt: skip
        return output

    def mamba2_block_scan(
        self, shape: ScanShape, xbc: torch.Tensor, dt: torch.Tensor, weights: ScanWeights, state: torch.Tensor
    ) -> torch.Tensor:
        """Mamba2BlockScan: xbc [D, B, conv_dim] -> [D, B, num_heads * head_dim]."""
        rows = int(xbc.shape[0])
        size = (rows, shape.block_size, shape.num_heads * shape.head_dim)
        output = self._empty(size, xbc.dtype, xbc.device)
        launch(
            self.run, "mamba2_block_scan", xbc.dtype,
            (shape.num_heads, shape.head_dim, shape.state_size, shape.n_groups, shape.conv_kernel, shape.block_size),
            (shape.num_heads, rows, 1),
            xbc=xbc, dt=dt, conv_weight=weights.conv_weight, conv_bias=weights.conv_bias, dt_bias=weights.dt_bias,
            a_log=weights.a_log, d=weights.d, state=state, output=output,
        )  # fmt: skip
        return output

    def sample_tokens(
        self,
        logits: torch.Tensor,
        token_ids: torch.Tensor,
        row_ids: torch.Tensor,
        positions: torch.Tensor,
        options: SamplingOptions,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """SampleTokens: logits float32 [K, V] -> ids int32, logprobs float32, finite bool, [K] each."""
        rows, vocab_size = int(logits.shape[0]), int(logits.shape[1])
        device, chunks = logits.device, geometry.sample_chunks(vocab_size)
        scratch = self._sample_workspace(rows, vocab_size, device)
        known: dict[str, Argument] = {
            "logits": logits, "token_ids": token_ids, "row_ids": row_ids, "positions": positions,
            "temperature": options.temperature, "top_p": options.top_p, "min_p": options.min_p, "top_k": options.top_k,
            "seed": options.seed, "vocab_size": vocab_size, "num_rows": int(options.temperature.shape[0]),
            "chunks": chunks, **scratch,
            "ids": self._empty([rows], torch.int32, device),
            "logprobs": self._empty([rows], torch.float32, device),
            "finite": self._empty([rows], torch.uint8, device),
        }  # fmt: skip
        key = (geometry.vocab_align(vocab_size),)
        grids = {"sample_scan": (chunks, rows, 1), "sample_filter": (rows, 1, 1), "sample_pick": (chunks, rows, 1)}
        for kernel, grid in {**grids, "sample_finish": (rows, 1, 1)}.items():
            args = {arg.name: known[arg.name] for arg in KERNELS[kernel].args}
            launch(self.run, kernel, None, key if KERNELS[kernel].key else (), grid, **args)
        ids, logprobs, finite = known["ids"], known["logprobs"], known["finite"]
        assert isinstance(ids, torch.Tensor) and isinstance(logprobs, torch.Tensor) and isinstance(finite, torch.Tensor)
        return ids, logprobs, finite.bool()
