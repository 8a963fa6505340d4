# SPDX-License-Identifier: Apache-2.0
"""Penalties, biases, bad words and least lengths as edits of single logits, per verify row.

The row that verifies draft j sees the text with the drafts before j in it, as if they had been accepted: if one was
not, the row is never used. So each token is drawn under the same edits with drafts and without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hspec_trt.config.sampling import SamplingParams

BANNED: Final = -1e30
"""Bias of a token that must not be drawn; finite, so that sums over a row stay so."""


def wants_edits(params: SamplingParams) -> bool:
    """True where an option edits logits."""
    return bool(
        params.min_tokens
        or params.repetition_penalty != 1.0
        or params.presence_penalty
        or params.frequency_penalty
        or params.logit_bias
        or params.bad_words
    )


@dataclass(frozen=True)
class RowEdits:
    """Edits of one row of logits: token ids, each once, with scale and bias (`hspec_trt.contract.EXTENSIONS`)."""

    ids: NDArray[np.int32]
    scales: NDArray[np.float32]
    biases: NDArray[np.float32]


class TextEdits:
    """The edits of one answer, kept up with its text.

    Args:
        prompt: int32 ``[n]``.
        end_ids: tokens that `min_tokens` keeps from being drawn.
        bad_words: token sequences that must not be completed.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt: NDArray[np.int32],
        end_ids: Iterable[int],
        bad_words: Sequence[Sequence[int]],
    ) -> None:
        self._params, self._prompt_len = params, len(prompt)
        self._end_ids = sorted(set(end_ids)) if params.min_tokens else []
        self._bad_words = [tuple(word) for word in bad_words]
        self._place: dict[int, int] = {}  # token id to its entry in the arrays below
        self._ids: list[int] = []
        self._seen: list[bool] = []  # in prompt or text
        self._counts: list[int] = []  # times in the text
        self._fixed: list[float] = []
        self._committed = len(prompt)
        for token, bias in params.logit_bias:
            self._fixed[self._entry(token)] += bias
        for word in self._bad_words:
            if len(word) == 1:
                self._fixed[self._entry(word[0])] += BANNED
        if params.repetition_penalty != 1.0:
            for token in np.unique(prompt).tolist():
                self._seen[self._entry(token)] = True

    def rows(self, text: NDArray[np.int32], drafts: Sequence[int]) -> list[RowEdits]:
        """Edits of the rows of one step: one after the text, and one after each draft.

        Args:
            text: int32 ``[n]``, prompt and output; each call extends the text of the one before.
        """
        for token in text[self._committed :].tolist():
            self._add(token)
        self._committed = len(text)
        context = text[-self._longest_word() :].tolist()
        made = [self._row(len(text), context)]
        undo = []
        for number, draft in enumerate(drafts, 1):
            undo.append((draft, self._seen[place] if (place := self._place.get(draft)) is not None else False))
            self._add(draft)
            context.append(draft)
            made.append(self._row(len(text) + number, context))
        for draft, seen in reversed(undo):
            place = self._place[draft]
            self._counts[place] -= 1
            self._seen[place] = seen
        return made

    def _add(self, token: int) -> None:
        place = self._entry(token)
        self._seen[place] = True
        self._counts[place] += 1

    def _entry(self, token: int) -> int:
        place = self._place.get(token)
        if place is None:
            place = self._place[token] = len(self._ids)
            self._ids.append(token)
            self._seen.append(False)
            self._counts.append(0)
            self._fixed.append(0.0)
        return place

    def _longest_word(self) -> int:
        return max((len(word) for word in self._bad_words), default=1)

    def _row(self, length: int, context: Sequence[int]) -> RowEdits:
        banned = self._banned(length, context)
        places = [self._entry(token) for token in sorted(banned)]
        params, counts = self._params, np.array(self._counts, np.float64)
        scales = np.where(self._seen, params.repetition_penalty, 1.0)
        penalties = params.presence_penalty * (counts > 0) + params.frequency_penalty * counts
        biases = np.array(self._fixed, np.float64) - penalties
        biases[places] = BANNED
        kept = (scales != 1.0) | (biases != 0.0)
        ids = np.array(self._ids, np.int32)[kept]
        return RowEdits(ids, scales[kept].astype(np.float32), biases[kept].astype(np.float32))

    def _banned(self, length: int, context: Sequence[int]) -> set[int]:
        """Tokens that must not come now: end tokens of a short text, and the last token of a bad word."""
        banned = set(self._end_ids) if length - self._prompt_len < self._params.min_tokens else set()
        for word in self._bad_words:
            start = len(word) - 1
            if start and tuple(context[-start:]) == word[:-1]:
                banned.add(word[-1])
        return banned
