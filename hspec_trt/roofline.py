# SPDX-License-Identifier: Apache-2.0
"""Speed and memory of an engine on a GPU, on paper: what its data sheet allows, before anything is built.

A step cannot be faster than its bytes over the memory bandwidth or its multiplications over the arithmetic rate (the
roofline bound). Real steps are slower; what holds better than the times is their ratio, which says from what accepted
length on drafts pay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hspec_trt.config.drafter import DrafterConfig, HSpecConfig
from hspec_trt.config.drafters_block import DFlashConfig
from hspec_trt.config.drafters_eagle import PEagleConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.dtypes import DType
from hspec_trt.memory import KvCost, draft_context_bytes, drafter_parameters, target_parameters

USABLE: Final = 0.9
"""Part of a GPU's memory that weights and pages may fill; the rest is for activations, kernels and the driver."""


@dataclass(frozen=True)
class Gpu:
    """A GPU by its data sheet.

    Attributes:
        memory: bytes.
        bandwidth: bytes a second.
        flops: dense bfloat16 operations a second, float32 accumulation.
        sm: architecture, such as 90.
    """

    name: str
    memory: int
    bandwidth: float
    flops: float
    sm: int


def _gpu(name: str, gib: int, gb_per_second: float, tflops: float, sm: int) -> Gpu:
    return Gpu(name, gib << 30, gb_per_second * 1e9, tflops * 1e12, sm)


GPUS: Final = {
    gpu.name: gpu
    for gpu in (
        _gpu("a10", 24, 600, 125, 86),
        _gpu("a100-40gb", 40, 1555, 312, 80),
        _gpu("a100-80gb", 80, 2039, 312, 80),
        _gpu("l4", 24, 300, 121, 89),
        _gpu("l40s", 48, 864, 362, 89),
        _gpu("h100", 80, 3350, 989, 90),
        _gpu("h200", 141, 4800, 989, 90),
        _gpu("b200", 180, 8000, 2250, 100),
        _gpu("rtx3090", 24, 936, 71, 86),
        _gpu("rtx4090", 24, 1008, 165, 89),
        _gpu("rtx5090", 32, 1792, 210, 120),
    )
}
"""Name to GPU; figures are those of the vendor's data sheets, without sparsity."""


@dataclass(frozen=True)
class Work:
    """What a part of a step moves and computes.

    Attributes:
        weight_bytes: read once a pass, however many rows and tokens.
        parameters: multiplied with every token.
        kv_bytes: K and V read a pass for one row.
        tokens: of one row in a pass.
        passes: one after the other; serial drafters need one for each draft.
    """

    weight_bytes: int
    parameters: int
    kv_bytes: int
    tokens: int
    passes: int = 1

    def seconds(self, gpu: Gpu, rows: int) -> float:
        """Roofline bound for `rows` rows."""
        moved = self.weight_bytes + rows * self.kv_bytes
        computed = 2 * self.parameters * rows * self.tokens
        return self.passes * max(moved / gpu.bandwidth, computed / gpu.flops)


def target_work(config: TargetConfig, dtype: DType, context: int, tokens: int) -> Work:
    """The target's pass over rows of `tokens` tokens with `context` tokens before them."""
    counted = target_parameters(config)
    multiplied = counted.layers + (counted.head or counted.embedding)
    kv_bytes = config.kv_bytes_per_token(dtype.itemsize) * context
    return Work(multiplied * dtype.itemsize, multiplied, kv_bytes, tokens)


def drafter_work(config: DrafterConfig | None, dtype: DType, context: int) -> Work:
    """The draft pass of one step; nothing where there is no drafter."""
    if config is None:
        return Work(0, 0, 0, 0)
    counted = drafter_parameters(config)
    multiplied = counted.layers + counted.heads + counted.head
    kv_bytes = draft_context_bytes(config, dtype, context)
    if isinstance(config, HSpecConfig | DFlashConfig):
        return Work(multiplied * dtype.itemsize, multiplied, kv_bytes, config.block_size)
    if isinstance(config, PEagleConfig):
        return Work(multiplied * dtype.itemsize, multiplied, kv_bytes, config.num_drafts)
    return Work(multiplied * dtype.itemsize, multiplied, kv_bytes, 1, passes=config.num_drafts)


@dataclass(frozen=True)
class StepBound:
    """Bounds of a decode step at one batch size.

    Attributes:
        off: seconds of a step of one token a row.
        target, drafter: seconds of the two parts of a step that verifies all drafts and makes new ones.
    """

    rows: int
    off: float
    target: float
    drafter: float

    @property
    def break_even(self) -> float:
        """Mean accepted length from which on drafts pay."""
        return (self.target + self.drafter) / self.off


def step_bound(
    gpu: Gpu,
    target: TargetConfig,
    drafter: DrafterConfig | None,
    dtype: DType,
    *,
    num_drafts: int,
    context: int,
    rows: int,
) -> StepBound:
    """Bounds of one decode step of `rows` rows, each with `context` tokens before it."""
    return StepBound(
        rows,
        target_work(target, dtype, context, 1).seconds(gpu, rows),
        target_work(target, dtype, context, 1 + num_drafts).seconds(gpu, rows),
        drafter_work(drafter, dtype, context).seconds(gpu, rows),
    )


def requests_that_fit(gpu: Gpu, weight_bytes: int, cost: KvCost, tokens: int, page_size: int) -> int:
    """Requests of `tokens` tokens at once beside the weights."""
    return cost.requests_that_fit(int(gpu.memory * USABLE) - weight_bytes, tokens, page_size)
