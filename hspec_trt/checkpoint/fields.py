# SPDX-License-Identifier: Apache-2.0
"""Reads typed, bounded fields out of a JSON object and collects what is wrong with them.

Owns the wording of field faults (C031 to C033). A field that fails yields a harmless value, so that the fields after it
are checked too; the caller raises the collected faults before it uses any of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, TypeVar

from hspec_trt.checkpoint.json_text import JsonObject, JsonValue, kind_of
from hspec_trt.errors import CheckpointError, Faults

_T = TypeVar("_T")


class Required:
    """Stands for "this field has no default"."""


REQUIRED: Final = Required()


@dataclass
class Fields:
    """The fields of one JSON object. A null counts as absent.

    Attributes:
        where: file (and key) of the object, for messages.
        faults: gets what is wrong.
        failed: names of the fields that were asked for and are wrong.
    """

    values: JsonObject
    where: str
    faults: Faults = field(default_factory=Faults)
    failed: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        """True where the field is there and not null."""
        return self.values.get(name) is not None

    def sound(self, *names: str) -> bool:
        """True where none of the fields was found wrong, so that a relation between them can be judged."""
        return self.failed.isdisjoint(names)

    def fault(self, code: str, found: str, *, needed: str = "", fix: str = "", name: str = "") -> None:
        """Note a fault of this object, or of its field `name`."""
        where = f"{self.where}: {name}" if name else self.where
        if name:
            self.failed.add(name)
        self.faults.add(CheckpointError(code, found, needed=needed, where=where, fix=fix))

    def integer(self, name: str, low: int, high: int, default: int | Required = REQUIRED) -> int:
        """A whole number in ``[low, high]``."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            return self._wrong_type(name, value, "an integer", low)
        if not low <= value <= high:
            self.fault("C032", f"{name} is {shown(value)}", needed=f"{low}..{high}", name=name)
            return low
        return value

    def number(self, name: str, low: float, high: float, default: float | Required = REQUIRED) -> float:
        """A finite number in ``[low, high]``, or in ``(0, high]`` where `low` is 0."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return self._wrong_type(name, value, "a number", high)
        in_range = low <= value <= high and (low != 0 or value > 0)
        if not (math.isfinite(value) if isinstance(value, float) else True) or not in_range:
            needed = f"{low:g} < {name} <= {high:g}" if low == 0 else f"{low:g}..{high:g}"
            self.fault("C032", f"{name} is {shown(value)}", needed=needed, name=name)
            return high
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self._get(name, default)
        return value if isinstance(value, bool) else self._wrong_type(name, value, "true or false", default)

    def text(self, name: str, default: str | Required = REQUIRED) -> str:
        """A string."""
        value = self._get(name, default)
        return value if isinstance(value, str) else self._wrong_type(name, value, "a string", "")

    def object(self, name: str) -> Fields:
        """A nested object (empty where absent), sharing this object's faults."""
        value = self._get(name, None)
        if value is not None and not isinstance(value, dict):
            self._wrong_type(name, value, "an object", None)
        return Fields(value if isinstance(value, dict) else {}, f"{self.where}: {name}", self.faults)

    def texts(self, name: str) -> list[str] | None:
        """A list of strings; None where absent."""
        value = self._get(name, None)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return [str(item) for item in value]
        return self._wrong_type(name, value, "a list of strings", None)

    def integers(self, name: str, low: int, high: int) -> tuple[int, ...] | None:
        """One whole number or a list of them, each in ``[low, high]``; None where absent."""
        value = self._get(name, None)
        if value is None:
            return None
        items = value if isinstance(value, list) else [value]
        if not all(type(item) is int for item in items):
            return self._wrong_type(name, value, "an integer or a list of integers", None)
        found = tuple(item for item in items if isinstance(item, int))
        wrong = [item for item in found if not low <= item <= high]
        if wrong:
            self.fault("C032", f"{name} holds {shown(wrong[0])}", needed=f"{low}..{high}", name=name)
            return None
        return found

    def _get(self, name: str, default: JsonValue | Required) -> JsonValue | Required:
        value = self.values.get(name)
        return default if value is None else value

    def _wrong_type(self, name: str, value: JsonValue | Required, needed: str, instead: _T) -> _T:
        if isinstance(value, Required):
            self.fault("C033", f"{name} is missing", needed=needed, name=name)
        else:
            self.fault("C031", f"{name} is the {kind_of(value)} {shown(value)}", needed=needed, name=name)
        return instead


def shown(value: JsonValue) -> str:
    """A value as messages show it: at most some 80 characters."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value) if not isinstance(value, (list, dict)) else f"of {len(value)} entries"
    return text if len(text) <= 80 else text[:77] + "..."
