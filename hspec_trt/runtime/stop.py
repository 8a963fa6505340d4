# SPDX-License-Identifier: Apache-2.0
"""When a text ends: the earliest of end token, stop string and length, over committed tokens in order.

Nothing after the end is emitted, counted or kept. It knows tokens and text, not requests or steps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from hspec_trt.runtime.detokenizer import TextStream

FinishReason = Literal["eos", "stop_token", "stop_string", "length", "cancelled", "error"]


@dataclass(frozen=True)
class StopRules:
    """Ids that end one request.

    Attributes:
        eos_ids: the model's end tokens; empty with ``ignore_eos``.
        stop_ids: the request's own.
    """

    eos_ids: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset()

    @property
    def is_empty(self) -> bool:
        """True where no id ends the text."""
        return not (self.eos_ids or self.stop_ids)


@dataclass(frozen=True)
class Ending:
    """How many tokens of a run are kept, and why the text ends there; `reason` is None where it goes on."""

    kept: int
    reason: FinishReason | None = None


def find_end(run: Sequence[int], budget: int, rules: StopRules, text: TextStream | None = None) -> Ending:
    """The end of a text within a run of tokens that a step emitted.

    Args:
        run: emitted token ids, in order.
        budget: tokens that the request may still take, at least 1.
        rules: ids that end it.
        text: the request's text so far, where it has stop strings; it is given the tokens that are kept.

    At one token an end id goes before a stop string (an end token has no text), and both before length.
    """
    ending = _end_by_ids(run, budget, rules)
    if text is None:
        return ending
    with_text = ending.kept - (ending.reason in ("eos", "stop_token"))
    for index in range(with_text):
        text.push(run[index : index + 1])
        if text.stopped:
            return Ending(index + 1, "stop_string")
    if ending.reason is not None:
        text.flush()
        if text.stopped:
            return Ending(with_text, "stop_string")
    return ending


def _end_by_ids(run: Sequence[int], budget: int, rules: StopRules) -> Ending:
    for index, token in enumerate(run[:budget]):
        reason = _id_reason(token, rules.eos_ids, rules.stop_ids)
        if reason is not None:
            return Ending(index + 1, reason)
    return Ending(budget, "length") if len(run) >= budget else Ending(len(run))


def _id_reason(token: int, eos_ids: Collection[int], stop_ids: Collection[int]) -> FinishReason | None:
    if token in eos_ids:
        return "eos"
    return "stop_token" if token in stop_ids else None
