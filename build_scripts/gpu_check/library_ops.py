# SPDX-License-Identifier: Apache-2.0
"""The custom ops through the C interface of the plugin library: the launchers and the compiled code that engines run.

It owns the translation of torch tensors to `hspec_trt_tensor` (plugins/include/hspec_trt/plugins.h).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from typing import Final

import torch

from build_scripts.gpu_check.ops import AttentionShape, PagedStep, SamplingOptions, ScanShape, ScanWeights
from hspec_trt.contract import (
    MAMBA2_BLOCK_SCAN,
    PAGED_ATTENTION,
    SAMPLE_TOKENS,
    SHARED_KV_ATTENTION,
    OpSpec,
)

DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool)
"""In the order of the interface's numbers."""


class LibraryError(RuntimeError):
    """The library refused a call."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.c_int64 * 8),
    )


def _described(tensors: Sequence[torch.Tensor]) -> ctypes.Array[_Tensor]:
    array = (_Tensor * len(tensors))()
    for item, tensor in zip(array, tensors, strict=True):
        if not tensor.is_contiguous():
            raise ValueError(f"tensor of shape {tuple(tensor.shape)} is not contiguous")
        item.data, item.dtype, item.rank = tensor.data_ptr(), DTYPES.index(tensor.dtype), tensor.dim()
        item.dims[: tensor.dim()] = list(tensor.shape)
    return array


def _attribute_words(spec: OpSpec, values: dict[str, int | float]) -> ctypes.Array[ctypes.c_int32]:
    formats = {"int": "<i", "float": "<f"}
    words = b"".join(pack(formats[kind], values[name]) for name, kind in spec.attributes.items())
    return (ctypes.c_int32 * len(spec.attributes)).from_buffer_copy(words)


@dataclass
class LibraryOps:
    """Implements `build_scripts.gpu_check.ops.Ops`; `splits` and `verify_width` are the library's own choice.

    Attributes:
        poison: fill the first output (never the aliased pages) and the workspace before each launch.
    """

    path: Path
    poison: bool = True
    _library: ctypes.CDLL = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._library = ctypes.CDLL(str(self.path))
        self._library.hspec_trt_last_error.restype = ctypes.c_char_p

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._library, name)(*arguments):
            raise LibraryError(self._library.hspec_trt_last_error().decode())

    def _launch(
        self,
        spec: OpSpec,
        values: dict[str, int | float],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> None:
        head = (spec.name.encode(), _attribute_words(spec, values), _described(inputs))
        size = ctypes.c_size_t()
        self._call("hspec_trt_workspace_bytes", *head, ctypes.byref(size))
        workspace = torch.empty(max(size.value, 1), dtype=torch.uint8, device=inputs[0].device)
        if self.poison:
            for tensor in (workspace, *outputs[:1]):
                tensor.view(torch.uint8).fill_(0xFF)
        on_gpu = inputs[0].is_cuda
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream if on_gpu else None)
        data = ctypes.c_void_p(workspace.data_ptr())
        self._call("hspec_trt_launch", *head, _described(outputs), data, size, stream)

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
        """PagedAttention; `kv_pages` is updated in place."""
        output = torch.empty_like(query)
        indices = (step.cu_query_lens, step.context_lens, step.page_table, step.query_slots)
        inputs = (query, key, value, kv_pages, *indices, step.token_rows, step.token_positions)
        self._launch(PAGED_ATTENTION, vars(shape), inputs, (output, kv_pages))
        return output

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
        output = torch.empty_like(query)
        values = {**vars(shape), "causal": int(causal), "no_context": int(no_context)}
        self._launch(SHARED_KV_ATTENTION, values, (query, key, value, kv_pages, page_table, prefix_lens), (output,))
        return output

    def mamba2_block_scan(
        self, shape: ScanShape, xbc: torch.Tensor, dt: torch.Tensor, weights: ScanWeights, state: torch.Tensor
    ) -> torch.Tensor:
        """Mamba2BlockScan."""
        size = (xbc.shape[0], shape.block_size, shape.num_heads * shape.head_dim)
        output = torch.empty(size, dtype=xbc.dtype, device=xbc.device)
        per_head = (weights.dt_bias, weights.a_log, weights.d)
        inputs = (xbc, dt, weights.conv_weight, weights.conv_bias, *per_head, state)
        self._launch(MAMBA2_BLOCK_SCAN, vars(shape), inputs, (output,))
        return output

    def sample_tokens(
        self,
        logits: torch.Tensor,
        token_ids: torch.Tensor,
        row_ids: torch.Tensor,
        positions: torch.Tensor,
        options: SamplingOptions,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """SampleTokens."""
        rows, device = int(logits.shape[0]), logits.device
        ids = torch.empty(rows, dtype=torch.int32, device=device)
        logprobs = torch.full((rows,), float("nan"), device=device)
        finite = torch.zeros(rows, dtype=torch.bool, device=device)
        columns = (options.temperature, options.top_p, options.min_p, options.top_k, options.seed)
        inputs = (logits, token_ids, row_ids, positions, *columns)
        self._launch(SAMPLE_TOKENS, {}, inputs, (ids, logprobs, finite))
        return ids, logprobs, finite
