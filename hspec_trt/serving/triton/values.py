# SPDX-License-Identifier: Apache-2.0
"""Values out of one prompt's line of an input tensor, and whether a value asks for nothing. Pure functions."""

from __future__ import annotations

import json
from typing import Final

import numpy as np

from hspec_trt.errors import RequestError
from hspec_trt.runtime.chat import Message
from hspec_trt.serving.triton.inputs import Input
from hspec_trt.serving.triton.tensors import Array, TritonType

Value = bool | int | float | str
_SCALARS: Final[dict[TritonType, type[bool] | type[int] | type[float]]] = {
    "BOOL": bool,
    "UINT8": int,
    "UINT64": int,
    "INT32": int,
    "INT64": int,
    "FP16": float,
    "FP32": float,
}


def texts(name: str, line: Array) -> tuple[str, ...]:
    """The strings of a line; padding (empty strings) is left out.

    Raises:
        RequestError: R423 where one is not UTF-8.
    """
    return tuple(text for text in (_text(name, item) for item in line.reshape(-1).tolist()) if text)


def scalar(name: str, dtype: TritonType, line: Array) -> Value:
    """The one element of a line.

    Raises:
        RequestError: R422 where there are more or none, R423 for a string that is not UTF-8.
    """
    items = line.reshape(-1).tolist()
    if len(items) != 1:
        raise RequestError("R422", f"{name} has {len(items)} elements", needed="one for each prompt")
    return _text(name, items[0]) if dtype == "STRING" else _SCALARS[dtype](items[0])


def whole_numbers(line: Array) -> tuple[int, ...]:
    """All elements of a line of integers."""
    return tuple(int(item) for item in line.reshape(-1).tolist())


def word_ids(name: str, line: Array) -> list[tuple[int, ...]]:
    """Words as token ids from TensorRT-LLM's form: int32 ``[2, n]``, all ids one after the other, and where each ends.

    Raises:
        RequestError: R422 where the ends do not fit the ids.
    """
    if line.ndim != 2 or line.shape[0] != 2:
        raise RequestError("R422", f"{name} has shape {list(line.shape)} for one prompt", needed="[2, n]")
    ids, ends = whole_numbers(line[0]), [end for end in whole_numbers(line[1]) if end > 0]
    if ends != sorted(ends) or (ends and ends[-1] > len(ids)):
        raise RequestError("R422", f"{name} ends its words at {ends}", needed=f"rising ends up to {len(ids)}")
    return [ids[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []


def json_objects(name: str, line: Array | None) -> tuple[Message, ...]:
    """The objects of a JSON list in the one string of a line; none where the line is missing or the string empty.

    Raises:
        RequestError: R422, R423.
    """
    text = "" if line is None else str(scalar(name, "STRING", line))
    if not text:
        return ()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise RequestError("R423", f"{name} is not JSON: {error}") from None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise RequestError("R423", f"{name} is JSON, but no list of objects", needed='[{"role": .., "content": ..}]')
    return tuple(found)


def refuse_unless_neutral(spec: Input, line: Array) -> None:
    """Refuse an option that cannot be served, unless its value asks for nothing.

    Raises:
        RequestError: R210, by name.
    """
    name, items = spec.tensor.name, line.reshape(-1).tolist()
    if spec.tensor.dtype == "STRING":
        asked = any(items)
    elif spec.neutral:
        asked = any(item not in spec.neutral for item in items)
    else:
        asked = bool(np.size(line))
    if asked:
        shown = f" = {items[0]!r}" if len(items) == 1 else ""
        raise RequestError("R210", f"{name}{shown} is not supported by this engine", fix=f"Leave {name} unset")


def _text(name: str, item: object) -> str:
    if isinstance(item, str):
        return item
    try:
        return bytes(item).decode() if isinstance(item, (bytes, np.bytes_)) else str(item)
    except UnicodeDecodeError as error:
        raise RequestError("R423", f"{name} is not UTF-8 text: {error}") from None
