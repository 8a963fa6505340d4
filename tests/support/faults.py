# SPDX-License-Identifier: Apache-2.0
"""Which faults a call reports."""

from __future__ import annotations

from collections.abc import Callable

from hspec_trt.errors import HspecError


def codes_of(call: Callable[[], object]) -> list[str]:
    """The codes of the faults that a call raises; empty if it succeeds. Any other exception is passed on."""
    try:
        call()
    except HspecError as error:
        return [fault.code for fault in error.faults]
    return []


def report_of(call: Callable[[], object]) -> str:
    """The text of the error that a call raises.

    Raises:
        AssertionError: the call succeeds.
    """
    try:
        call()
    except HspecError as error:
        return str(error)
    raise AssertionError("nothing was refused")
