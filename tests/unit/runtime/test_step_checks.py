# SPDX-License-Identifier: Apache-2.0
"""A step that breaks the contract is refused before a backend reads it."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from hspec_trt.config.build import EXTENSION_NAMES, FEEDBACK
from hspec_trt.contract import DRAFT_CONFIDENCE, EXTENSIONS, NEXT_IDS, STEP_INPUTS, STEP_OUTPUTS
from hspec_trt.errors import RequestError
from hspec_trt.runtime.session import StepExtras, StepInputs, StepOutputs
from hspec_trt.runtime.step_checks import check_step
from tests.support.scripted import make_limits

LIMITS = make_limits()
FULL = replace(LIMITS, extensions=EXTENSION_NAMES)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def good() -> StepInputs:
    """Two rows: three tokens of a prompt's end, and a decode row with one draft."""
    return StepInputs(
        input_ids=ints(1, 2, 3, 4, 5),
        cu_query_lens=ints(0, 3, 5),
        context_lens=ints(0, 6),
        query_slots=np.array([[0, 1, 2], [3, 4, 4]], np.int32),
        verify_rows=ints(2, 3, 4),
        cu_verify_lens=ints(0, 1, 3),
        draft_rows=ints(0, 1),
        page_table=np.array([[1, 0], [2, 3]], np.int32),
        temperature=np.zeros(2, np.float32),
        top_p=np.ones(2, np.float32),
        min_p=np.zeros(2, np.float32),
        top_k=ints(0, 0),
        seed=np.zeros(2, np.int64),
    )


def test_names_and_types_are_the_contracts() -> None:
    extra_inputs = [spec for extension in EXTENSIONS.values() for spec in extension.inputs]
    extra_outputs = [spec for name in EXTENSION_NAMES for spec in EXTENSIONS[name].outputs]  # others stay on a device
    assert [field.name for field in fields(StepInputs)] == [*(spec.name for spec in (*STEP_INPUTS, NEXT_IDS)), "extras"]
    assert [field.name for field in fields(StepExtras)] == [spec.name for spec in extra_inputs]
    assert [field.name for field in fields(StepOutputs)] == [
        spec.name for spec in (*STEP_OUTPUTS, DRAFT_CONFIDENCE, *extra_outputs)
    ]
    arrays = replace(good(), extras=StepExtras.none(61)).arrays()
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        spec.name: spec.dtype for spec in (*STEP_INPUTS, *extra_inputs)
    }
    check_step(good(), FULL, num_pages=4)
    check_step(good(), LIMITS, num_pages=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": ints(1, 2, 3, 4, 61)}, r"input_ids spans \[1, 61\], needs \[0, 60\]"),
        ({"input_ids": ints(1, 2, 3, 4, -1)}, "input_ids spans"),
        ({"input_ids": np.zeros(5, np.int64)}, "input_ids is int64, needs int32"),
        ({"page_table": np.array([[1, 0], [2, 4]], np.int32)}, r"page_table spans \[0, 4\], needs \[0, 3\]"),
        ({"page_table": np.array([[1], [2]], np.int32)}, "page_table has 1 pages a row for 8 tokens"),
        ({"next_ids": ints(1, 61)}, r"next_ids spans \[1, 61\], needs \[0, 60\]"),
        ({"next_ids": ints(1)}, "next_ids dim R is 1, needs 2"),
        ({"page_table": ints(1, 2)}, r"page_table has 1 dims, needs \[R, M\]"),
        ({"query_slots": np.array([[0, 1, 5], [3, 4, 4]], np.int32)}, "query_slots spans"),
        ({"verify_rows": ints(2, 3, 5)}, "verify_rows spans"),
        ({"cu_query_lens": ints(0, 3, 6)}, "cu_query_lens is not a rising sum"),
        ({"cu_query_lens": ints(0, 5, 3)}, "cu_query_lens is not a rising sum"),
        ({"cu_verify_lens": ints(1, 1, 3)}, "cu_verify_lens is not a rising sum"),
        ({"cu_verify_lens": ints(0, 3)}, r"cu_verify_lens dim R\+1 is 2, needs 3"),
        ({"draft_rows": ints(0, 2)}, "draft_rows spans"),
        ({"context_lens": ints(0, 127)}, r"context_lens \+ query_len spans"),
        ({"top_k": ints(0)}, "top_k dim R is 1, needs 2"),
    ],
)
def test_each_fault_is_named(change: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        check_step(replace(good(), **change), LIMITS, num_pages=4)
    assert caught.value.code == "R310"


def test_drafts_asked_of_an_engine_without_a_drafter() -> None:
    with pytest.raises(RequestError, match="no drafter"):
        check_step(good(), make_limits(has_drafter=False), num_pages=4)


def extras(**changes: np.ndarray) -> StepExtras:
    """One edit, one mask and one list, on the three rows of logits."""
    values = StepExtras(
        edit_rows=ints(2),
        edit_ids=ints(60),
        edit_scales=np.array([1.3], np.float32),
        edit_biases=np.array([-1.0], np.float32),
        mask_rows=ints(0),
        token_masks=np.ones((1, 61), bool),
        top_rows=ints(1),
    )
    return replace(values, **changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edit_rows": ints(3)}, r"edit_rows spans \[3, 3\], needs \[0, 2\]"),
        ({"edit_ids": ints(61)}, "edit_ids spans"),
        ({"edit_ids": ints(1, 2)}, "edit_ids dim E is 2, needs 1"),
        ({"edit_scales": np.zeros(1, np.float32)}, "edit_scales has 0.0, needs more than 0"),
        ({"edit_biases": np.array([np.nan], np.float32)}, "not finite"),
        ({"mask_rows": ints(-1)}, "mask_rows spans"),
        ({"token_masks": np.ones((1, 60), bool)}, "token_masks dim V is 60, needs 61"),
        ({"top_rows": ints(7)}, "top_rows spans"),
    ],
)
def test_faults_of_extensions(change: dict[str, np.ndarray], message: str) -> None:
    check_step(replace(good(), extras=extras()), FULL, num_pages=4)
    with pytest.raises(RequestError, match=message):
        check_step(replace(good(), extras=extras(**change)), FULL, num_pages=4)


def test_extension_that_the_engine_lacks() -> None:
    with pytest.raises(RequestError, match=r"built without logit_edits.*without token_masks.*without top_logprobs"):
        check_step(replace(good(), extras=extras()), LIMITS, num_pages=4)


def test_names_of_extensions_are_the_contracts() -> None:
    assert tuple(EXTENSIONS) == (*EXTENSION_NAMES, FEEDBACK)
