# SPDX-License-Identifier: Apache-2.0
"""Errors that people meet: each has a stable code, what was found, what was needed, where, and one fix.

This module owns the shape of a fault and how several faults are reported together. It knows nothing of
checkpoints, graphs or engines, and imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar


class HspecError(Exception):
    """Base of all errors that hspec_trt raises for bad input or a failed step.

    Args:
        code: stable code, one letter of the class's family and three digits, e.g. ``C003``.
        found: what is there.
        needed: what should be there.
        where: file and key, option, or request field; empty where `found` says it all.
        fix: one thing to do about it.
    """

    family: ClassVar[str] = ""

    def __init__(self, code: str, found: str, *, needed: str = "", where: str = "", fix: str = "") -> None:
        if not (code[:1] == self.family and len(code) == 4 and code[1:].isdigit()):
            raise ValueError(f"{type(self).__name__} codes look like {self.family}001, got {code!r}")
        self.code, self.found, self.needed, self.where, self.fix = code, found, needed, where, fix
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """The text after the code: found; needed; where; fix."""
        text = self.found
        if self.needed:
            text += f"; needed: {self.needed}"
        if self.where:
            text += f" ({self.where})"
        if self.fix:
            text += f". {self.fix}"
        return text

    def __str__(self) -> str:
        return f"error[{self.code}]: {self.message}"

    @property
    def faults(self) -> tuple[HspecError, ...]:
        """The single faults that this error reports; itself, unless it is a `FaultGroup`."""
        return (self,)

    def to_dict(self) -> dict[str, str]:
        """The fault as plain strings, for ``--json`` and servers."""
        return {
            "code": self.code,
            "found": self.found,
            "needed": self.needed,
            "where": self.where,
            "fix": self.fix,
        }


class CheckpointError(HspecError):
    """A target or drafter checkpoint is missing, damaged, unsafe or of an unknown kind (C...)."""

    family = "C"


class DrafterError(HspecError):
    """A drafter's own contract is broken, or it does not fit the target (D...)."""

    family = "D"


class BuildError(HspecError):
    """An engine cannot be built as asked (B...)."""

    family = "B"


class LoadError(HspecError):
    """An engine folder cannot be loaded here (L...)."""

    family = "L"


class RequestError(HspecError):
    """One request cannot be served; others are not affected (R...)."""

    family = "R"


class FaultGroup(HspecError):
    """Several faults found before any expensive step, reported together."""

    def __init__(self, faults: Sequence[HspecError]) -> None:
        if len(faults) < 2:
            raise ValueError("a FaultGroup holds at least two faults")
        self._faults = tuple(faults)
        first = faults[0]
        self.family = first.family  # type: ignore[misc]
        super().__init__(first.code, first.found, needed=first.needed, where=first.where, fix=first.fix)

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self._faults)

    @property
    def faults(self) -> tuple[HspecError, ...]:
        """The faults of the group, in the order in which they were found."""
        return self._faults


@dataclass
class Faults:
    """Collects faults so that cheap checks all run before one report.

    Example::

        faults = Faults()
        with faults.collect():
            check_a()
        with faults.collect():
            check_b()
        faults.raise_any()
    """

    found: list[HspecError] = field(default_factory=list)

    def add(self, fault: HspecError) -> None:
        """Note one fault (or each fault of a group)."""
        self.found.extend(fault.faults)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Run a block and keep the `HspecError` that it raises, if any."""
        try:
            yield
        except HspecError as error:
            self.add(error)

    def raise_any(self) -> None:
        """Raise what was collected: nothing, the single fault, or a `FaultGroup`."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise FaultGroup(self.found)
