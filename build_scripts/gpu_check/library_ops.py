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
    APPEND_KV,
    MAMBA2_BLOCK_SCAN,
    PAGED_ATTENTION,
    SAMPLE_TOKENS,
    SHARED_KV_ATTENTION,
    OpSpec,
)

DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool)
"""In the order of the interface's numbers."""
GUARD_BYTES: Final = 256
"""Bytes before and after a workspace that no kernel may write; as many as its address is aligned to."""
_GUARD: Final = 0xA5


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


class Workspace:
    """Memory of a launch.

    Args:
        guarded: poisoned, and between bytes that are not for the launch.

    Attributes:
        address: where it begins.
    """

    def __init__(self, nbytes: int, device: torch.device, *, guarded: bool) -> None:
        self._guard = GUARD_BYTES if guarded else 0
        self._memory = torch.empty(max(nbytes, 1) + 2 * self._guard, dtype=torch.uint8, device=device)
        if guarded:
            self._memory.fill_(_GUARD)
            self._memory[GUARD_BYTES : GUARD_BYTES + nbytes] = 0xFF
        self._end = self._guard + nbytes
        self.address = self._memory.data_ptr() + self._guard

    def is_intact(self) -> bool:
        """Whether nothing was written around it; waits for the device where it is guarded."""
        if not self._guard:
            return True
        around = torch.cat([self._memory[: self._guard], self._memory[self._end :]])
        return bool((around == _GUARD).all())


@dataclass
class LibraryOps:
    """Implements `build_scripts.gpu_check.ops.Ops`; `splits` and `verify_width` are the library's own choice.

    Attributes:
        poison: fill the first output (never the aliased pages) and the workspace before each launch, and look
            afterwards whether anything was written around the workspace.
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
        workspace = Workspace(size.value, inputs[0].device, guarded=self.poison)
        own = [tensor for name, tensor in zip(spec.outputs, outputs, strict=True) if name not in spec.aliased]
        if self.poison:
            for tensor in own[:1]:
                tensor.view(torch.uint8).fill_(0xFF)
        on_gpu = inputs[0].is_cuda
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream if on_gpu else None)
        self._call("hspec_trt_launch", *head, _described(outputs), ctypes.c_void_p(workspace.address), size, stream)
        if not workspace.is_intact():
            raise LibraryError(f"{spec.name} wrote outside its workspace of {size.value} bytes")

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

    def append_kv(
        self, shape: AttentionShape, step: PagedStep, key: torch.Tensor, value: torch.Tensor, kv_pages: torch.Tensor
    ) -> None:
        """AppendKv; `kv_pages` is updated in place."""
        values = {name: vars(shape)[name] for name in APPEND_KV.attributes}
        inputs = (key, value, kv_pages, step.page_table, step.token_rows, step.token_positions)
        self._launch(APPEND_KV, values, inputs, (kv_pages,))

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
