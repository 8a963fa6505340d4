# SPDX-License-Identifier: Apache-2.0
"""What one answer wants of its rows of logits: edits, a grammar's masks, lists of most likely tokens. State only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hspec_trt.runtime.edits import TextEdits

TopTokens = list[tuple[int, float]]
"""Most likely tokens of one position with their log-probabilities, best first."""


class Guide(Protocol):
    """What is needed of `hspec_trt.runtime.guided.TextGuide`."""

    def rows(self, text: NDArray[np.int32], drafts: Sequence[int]) -> list[NDArray[np.bool_]]:
        """Masks after the text and after each draft that fits."""


@dataclass
class Shaper:
    """What one answer wants of its rows of logits.

    Attributes:
        num_top: most likely tokens to report per position.
        tops: what was reported, a list per kept token.
    """

    edits: TextEdits | None = None
    guide: Guide | None = None
    num_top: int = 0
    tops: list[TopTokens] = field(default_factory=list)

    @property
    def is_needed(self) -> bool:
        """False where the answer wants nothing."""
        return self.edits is not None or self.guide is not None or self.num_top > 0
