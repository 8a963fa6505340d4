# SPDX-License-Identifier: Apache-2.0
"""Helpers for the format tests: golden drafters with one thing changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hspec_trt.checkpoint.fields import Fields
from hspec_trt.checkpoint.formats.layout import DrafterLayout, DrafterSource
from hspec_trt.config.drafter_options import DrafterOptions
from hspec_trt.errors import HspecError
from tests.support.golden_drafters import GoldenCase, sources

Reader = Callable[[DrafterSource], DrafterLayout]
Json = dict[str, object]


def changed(case: GoldenCase, *, drop: str = "", **values: object) -> GoldenCase:
    """The case with keys of config.json replaced ("outer__inner" reaches into an object) or one dropped."""
    config = copy.deepcopy(case.config_json)
    for key, value in values.items():
        outer, _, inner = key.partition("__")
        if inner:
            config[outer][inner] = value  # type: ignore[index]
        else:
            config[outer] = value
    if drop:
        outer, _, inner = drop.partition("__")
        del (config[outer] if inner else config)[inner or outer]  # type: ignore[union-attr]
    return replace(case, config_json=config)


def with_arrays(case: GoldenCase, **arrays: np.ndarray | None) -> GoldenCase:
    """The case with tensors replaced, added, or (None) dropped; ``__`` stands for a dot in the name."""
    new = dict(case.arrays)
    for key, array in arrays.items():
        name = key.replace("__", ".")
        if array is None:
            del new[name]
        else:
            new[name] = array
    return replace(case, arrays=new)


def read(case: GoldenCase, reader: Reader, **options: object) -> DrafterLayout:
    source = DrafterSource(
        Fields(copy.deepcopy(case.config_json), "config.json"),  # type: ignore[arg-type]
        sources(case.arrays),
        case.target,
        DrafterOptions(**options),  # type: ignore[arg-type]
    )
    return reader(source)


def codes(case: GoldenCase, reader: Reader, **options: object) -> set[str]:
    """Codes of the faults; empty where the checkpoint is accepted."""
    try:
        read(case, reader, **options)
    except HspecError as error:
        return {fault.code for fault in error.faults}
    return set()


def message(case: GoldenCase, reader: Reader, **options: object) -> str:
    try:
        read(case, reader, **options)
    except HspecError as error:
        return str(error)
    return ""
