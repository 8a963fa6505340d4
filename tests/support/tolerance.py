# SPDX-License-Identifier: Apache-2.0
"""How close is close enough: one table per type, and a rule that scales with the arithmetic. No test sets its own.

The rule (after flash-attention's tests): our largest error against a float32 reference may be twice that of a plain
evaluation in our own precision, plus two rounding steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hspec_trt.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType

GOLDEN_ABSOLUTE = 2e-4
"""float32 engines against the golden vectors (tests/golden/README.md)."""

# Relative to the largest magnitude of the reference: one layer's worth of rounding.
RELATIVE = {FLOAT32: 1e-5, FLOAT16: 1e-2, BFLOAT16: 4e-2}
LARGEST_FLOAT16 = 65504.0
ROUNDING_STEP = {FLOAT32: 2.0**-23, FLOAT16: 2.0**-10, BFLOAT16: 2.0**-7}


def largest_difference(got: ArrayLike, want: ArrayLike) -> float:
    """Largest absolute difference; infinite where either is NaN or the shapes differ."""
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if a.shape != b.shape:
        return float("inf")
    difference = np.abs(a - b)
    return float("inf") if np.isnan(difference).any() else float(difference.max(initial=0.0))


def assert_golden(got: ArrayLike, want: ArrayLike, what: str = "") -> None:
    """Equal to a golden vector within `GOLDEN_ABSOLUTE`, in shape too."""
    assert np.shape(got) == np.shape(want), f"{what}: shape {np.shape(got)}, expected {np.shape(want)}"
    difference = largest_difference(got, want)
    assert difference <= GOLDEN_ABSOLUTE, f"{what}: differs by {difference:.3g}, allowed {GOLDEN_ABSOLUTE:.3g}"


def assert_close(got: ArrayLike, want: ArrayLike, dtype: DType = FLOAT32, what: str = "") -> None:
    """Equal within the table's share of the reference's largest magnitude."""
    assert np.shape(got) == np.shape(want), f"{what}: shape {np.shape(got)}, expected {np.shape(want)}"
    allowed = RELATIVE[dtype] * max(float(np.abs(np.asarray(want, np.float64)).max(initial=0.0)), 1e-3)
    difference = largest_difference(got, want)
    assert difference <= allowed, f"{what}: differs by {difference:.3g}, allowed {allowed:.3g}"


def norm_error(got: ArrayLike, want: ArrayLike) -> float:
    """|got - want| / |want|, for results of whole networks, where single values stray."""
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def assert_rule_e1(got: ArrayLike, plain: ArrayLike, reference: ArrayLike, dtype: DType, what: str = "") -> None:
    """|got - reference| <= 2 |plain - reference| + 2 rounding steps, maxima over the tensor.

    Args:
        plain: a straightforward evaluation in `dtype`.
        reference: the same in float32 (for a float32 `got`: float64).
    """
    ours, theirs = largest_difference(got, reference), largest_difference(plain, reference)
    scale = float(np.abs(np.asarray(reference, np.float64)).max(initial=0.0))
    allowed = 2.0 * theirs + 2.0 * ROUNDING_STEP[dtype] * scale
    assert ours <= allowed, f"{what}: error {ours:.3g}, allowed {allowed:.3g} (plain version: {theirs:.3g})"
