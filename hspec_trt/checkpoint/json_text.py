# SPDX-License-Identifier: Apache-2.0
"""JSON objects from files that nobody vouches for: duplicate keys, deep nesting and bad text are refused.

Owns parsing only. What the fields mean is for `hspec_trt.checkpoint.fields` and its callers.
"""

from __future__ import annotations

import json
from typing import TypeAlias

from hspec_trt.errors import CheckpointError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = "dict[str, JsonValue]"


class _DuplicateKey(ValueError):
    pass


def parse_object(data: bytes, *, where: str, code: str = "C011") -> JsonObject:
    """Parse one JSON object (UTF-8).

    Args:
        where: the file, for messages.
        code: the code of the fault that is raised.

    Raises:
        CheckpointError: with `code`; not JSON, not an object, a key given twice, or nested too deeply.
    """
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique)
    except RecursionError:
        raise CheckpointError(code, f"{where} is nested too deeply", needed="plain JSON") from None
    except _DuplicateKey as error:
        raise CheckpointError(code, f"{where} has the key {error} twice", needed="each key once") from None
    except ValueError as error:
        raise CheckpointError(code, f"{where} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(code, f"{where} holds a JSON {kind_of(value)}", needed="a JSON object")
    return value


def kind_of(value: JsonValue) -> str:
    """What a value is called in JSON."""
    names = {dict: "object", list: "list", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), "null")


def _unique(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKey(repr(key[:80]))
            seen.add(key)
    return fields
