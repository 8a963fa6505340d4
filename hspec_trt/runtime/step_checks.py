# SPDX-License-Identifier: Apache-2.0
"""Checks the arrays of a step against the contract before a backend reads them.

A wrong index would be an out-of-bounds access in a kernel, so every session calls `check_step`. It owns no state.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hspec_trt.contract import EXTENSIONS, NEXT_IDS, STEP_INPUTS
from hspec_trt.errors import RequestError
from hspec_trt.runtime.session import Limits, StepInputs


def check_step(inputs: StepInputs, limits: Limits, num_pages: int) -> None:
    """Refuse a step that breaks the contract.

    Raises:
        RequestError: R310 with every fault of the step.
    """
    missing = (inputs.extras.used if inputs.extras else frozenset()) - set(limits.extensions)
    faults = [f"the engine was built without {name}" for name in sorted(missing)]
    faults += _shape_faults(inputs.arrays(), limits)
    if not faults:
        faults = [*_value_faults(inputs, limits, num_pages), *_extra_faults(inputs, limits)]
    if faults:
        raise RequestError("R310", "; ".join(faults), needed="arrays as the step contract says", where="step inputs")


def _shape_faults(arrays: dict[str, NDArray[np.generic]], limits: Limits) -> Iterator[str]:
    rows = arrays["context_lens"].size
    sizes: dict[str, int] = {"R": rows, "R+1": rows + 1, "V": limits.vocab_size}
    further = (spec for extension in EXTENSIONS.values() for spec in extension.inputs)
    for spec in (*STEP_INPUTS, NEXT_IDS, *further):
        array = arrays.get(spec.name)
        if array is None:
            continue  # an input that not every engine takes
        if array.dtype.name != spec.dtype:
            yield f"{spec.name} is {array.dtype.name}, needs {spec.dtype}"
        if array.ndim != len(spec.dims):
            yield f"{spec.name} has {array.ndim} dims, needs [{', '.join(spec.dims)}]"
            continue
        for dim, size in zip(spec.dims, array.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                yield f"{spec.name} dim {dim} is {size}, needs {sizes[dim]}"


def _value_faults(inputs: StepInputs, limits: Limits, num_pages: int) -> Iterator[str]:
    rows, tokens = inputs.context_lens.size, inputs.input_ids.size
    query_lens, verify_lens = np.diff(inputs.cu_query_lens), np.diff(inputs.cu_verify_lens)
    yield from _range_fault("number of rows", np.array(rows), 1, limits.max_rows + 1)
    yield from _range_fault("number of tokens", inputs.cu_query_lens[-1:], 1, limits.max_tokens + 1)
    for name, lens, total in (
        ("cu_query_lens", query_lens, inputs.cu_query_lens[-1] <= tokens),
        ("cu_verify_lens", verify_lens, inputs.cu_verify_lens[-1] <= inputs.verify_rows.size),
    ):
        if getattr(inputs, name)[0] != 0 or (lens < 0).any() or not total:
            yield f"{name} is not a rising sum within its array"
    yield from _range_fault("input_ids", inputs.input_ids, 0, limits.vocab_size)
    if inputs.next_ids is not None:
        yield from _range_fault("next_ids", inputs.next_ids, 0, limits.vocab_size)
    yield from _range_fault("query_slots", inputs.query_slots, 0, tokens)
    yield from _range_fault("verify_rows", inputs.verify_rows, 0, tokens)
    yield from _range_fault("page_table", inputs.page_table, 0, num_pages)
    yield from _range_fault("draft_rows", inputs.draft_rows, 0, rows)
    ends = inputs.context_lens + query_lens
    yield from _range_fault("context_lens + query_len", ends, 0, limits.max_seq_len + 1)
    if inputs.page_table.shape[1] * limits.page_size < ends.max(initial=0):
        yield f"page_table has {inputs.page_table.shape[1]} pages a row for {ends.max()} tokens"
    yield from _range_fault("verify lengths", verify_lens, 0, limits.num_drafts + 2)
    if inputs.draft_rows.size and not limits.has_drafter:
        yield "draft_rows is not empty, but the engine has no drafter"


def _extra_faults(inputs: StepInputs, limits: Limits) -> Iterator[str]:
    extras, logit_rows = inputs.extras, inputs.verify_rows.size
    if extras is None:
        return
    yield from _range_fault("edit_rows", extras.edit_rows, 0, logit_rows)
    yield from _range_fault("edit_ids", extras.edit_ids, 0, limits.vocab_size)
    yield from _range_fault("mask_rows", extras.mask_rows, 0, logit_rows)
    yield from _range_fault("top_rows", extras.top_rows, 0, logit_rows)
    if extras.edit_scales.size and not extras.edit_scales.min() > 0:
        yield f"edit_scales has {extras.edit_scales.min()}, needs more than 0"
    if not (np.isfinite(extras.edit_scales).all() and np.isfinite(extras.edit_biases).all()):
        yield "edit_scales or edit_biases is not finite"


def _range_fault(name: str, values: NDArray[np.generic], low: int, high: int) -> Iterator[str]:
    if values.size and (values.min() < low or values.max() >= high):
        yield f"{name} spans [{values.min()}, {values.max()}], needs [{low}, {high - 1}]"
