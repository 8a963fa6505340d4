# SPDX-License-Identifier: Apache-2.0
"""The custom ops as calls on torch tensors: attributes, step inputs, and what runs them. Knows no kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True)
class AttentionShape:
    """The attributes that both attention ops share."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    scale: float
    window: int = 0

    @property
    def group(self) -> int:
        """Query heads of one K/V head."""
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True)
class PagedStep:
    """The integer inputs of PagedAttention, int32."""

    cu_query_lens: torch.Tensor
    context_lens: torch.Tensor
    page_table: torch.Tensor
    token_rows: torch.Tensor
    token_positions: torch.Tensor
    query_slots: torch.Tensor

    @property
    def rows(self) -> int:
        """R."""
        return int(self.context_lens.shape[0])

    @property
    def longest_query(self) -> int:
        """T."""
        return int(self.query_slots.shape[1])


@dataclass(frozen=True)
class ScanShape:
    """The attributes of Mamba2BlockScan."""

    num_heads: int
    head_dim: int
    state_size: int
    n_groups: int
    conv_kernel: int
    block_size: int


@dataclass(frozen=True)
class ScanWeights:
    """The weights of Mamba2BlockScan: conv in the engine's type, the per-head ones in float32."""

    conv_weight: torch.Tensor
    conv_bias: torch.Tensor
    dt_bias: torch.Tensor
    a_log: torch.Tensor
    d: torch.Tensor


@dataclass(frozen=True)
class SamplingOptions:
    """Sampling inputs of all rows: float32 [R] three times, int32 [R], int64 [R]."""

    temperature: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    top_k: torch.Tensor
    seed: torch.Tensor


class Ops(Protocol):
    """Runs the custom ops; shapes as in `hspec_trt.contract`. Outputs come poisoned, where they were not written."""

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
        """PagedAttention; `kv_pages` is updated in place.

        Args:
            verify_width: tokens of the longest row that the engine verifies (drafts + 1).
            splits: forced number of splits, where that can be forced; None takes the launcher's own rule.
        """
        ...

    def append_kv(
        self, shape: AttentionShape, step: PagedStep, key: torch.Tensor, value: torch.Tensor, kv_pages: torch.Tensor
    ) -> None:
        """AppendKv, which fills a drafter's cache; `kv_pages` is updated in place."""
        ...

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
        """SharedKvAttention."""
        ...

    def mamba2_block_scan(
        self, shape: ScanShape, xbc: torch.Tensor, dt: torch.Tensor, weights: ScanWeights, state: torch.Tensor
    ) -> torch.Tensor:
        """Mamba2BlockScan."""
        ...

    def sample_tokens(
        self,
        logits: torch.Tensor,
        token_ids: torch.Tensor,
        row_ids: torch.Tensor,
        positions: torch.Tensor,
        options: SamplingOptions,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """SampleTokens: ids int32, logprobs float32, finite bool, [K] each."""
        ...
