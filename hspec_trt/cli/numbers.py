# SPDX-License-Identifier: Apache-2.0
"""Values of options that are more than one number: bytes with a unit, and numbers with commas between them."""

from __future__ import annotations

import re

import click

_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class _Bytes(click.ParamType[int]):
    """A number of bytes with an optional unit."""

    name = "bytes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d{1,20}(?:\.\d{1,20})?)\s*([KMG]i?B)?", str(value))
        if not found:
            self.fail(f"{str(value)[:40]!r} is not a number of bytes such as 4GiB", param, ctx)
        return int(float(found[1]) * _UNITS[found[2] or ""])


class _Integers(click.ParamType[tuple[int, ...]]):
    """Whole numbers, separated by commas.

    Args:
        sign: of the numbers, as a pattern.
    """

    name = "numbers"

    def __init__(self, sign: str = "") -> None:
        self._pattern = rf"{sign}\d{{1,9}}(,{sign}\d{{1,9}})*"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(self._pattern, str(value)):
            self.fail(f"{str(value)[:40]!r} is not a list of numbers such as 0,1", param, ctx)
        return tuple(int(part) for part in str(value).split(","))


BYTES = _Bytes()
NATURALS = _Integers()
INTEGERS = _Integers(sign="-?")
