# SPDX-License-Identifier: Apache-2.0
"""What the runtime needs of an engine: one step in, one step out, and pages.

Owns the step's arrays (named and typed as `hspec_trt.contract`), an engine's limits, and the protocol that every
backend's session implements. It knows nothing of requests, scheduling or a particular backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hspec_trt.config.build import ExtensionName

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Limits:
    """What one engine can take.

    Attributes:
        vocab_size: V; token ids are in [0, vocab_size).
        num_drafts: G, drafts a row may carry.
        page_size: tokens a page holds.
        page_bytes: bytes of one page over all layers and pools.
        max_rows: R of one step at most.
        max_tokens: N of one step at most.
        max_seq_len: prompt plus new tokens of one request.
        has_drafter: whether ``draft_rows`` may be non-empty.
        draft_max_position: positions that the drafter was trained for; drafts lie below it.
        cache_lookahead: tokens beyond a page that the drafter's part of it depends on.
        extensions: optional parts of the step that the engine has, names of `hspec_trt.contract.EXTENSIONS`.
    """

    vocab_size: int
    num_drafts: int
    page_size: int
    page_bytes: int
    max_rows: int
    max_tokens: int
    max_seq_len: int
    has_drafter: bool
    draft_max_position: int
    cache_lookahead: int = 0
    extensions: tuple[ExtensionName, ...] = ()

    @property
    def max_pages_per_row(self) -> int:
        """Pages that the longest request takes."""
        return -(-self.max_seq_len // self.page_size)


@dataclass(frozen=True)
class StepExtras:
    """Inputs of the extensions ``logit_edits``, ``token_masks`` and ``top_logprobs``; empty where not used."""

    edit_rows: Int32
    edit_ids: Int32
    edit_scales: Float32
    edit_biases: Float32
    mask_rows: Int32
    token_masks: NDArray[np.bool_]
    top_rows: Int32

    @staticmethod
    def none(vocab_size: int) -> StepExtras:
        """No edit, no mask, no list of tokens."""
        ints, floats = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return StepExtras(ints, ints, floats, floats, ints, np.zeros((0, vocab_size), bool), ints)

    @property
    def used(self) -> frozenset[ExtensionName]:
        """Extensions without which the step would not do what is asked."""
        sizes: dict[ExtensionName, int] = {
            "logit_edits": self.edit_rows.size,
            "token_masks": self.mask_rows.size,
            "top_logprobs": self.top_rows.size,
        }
        return frozenset(name for name, size in sizes.items() if size)


@dataclass(frozen=True)
class StepInputs:
    """The inputs of one step but for the pages; names, shapes and types as `hspec_trt.contract.STEP_INPUTS`.

    Attributes:
        next_ids: as `hspec_trt.contract.NEXT_IDS`; a session hands it to the engines that take it.
        extras: inputs of the engine's extensions; None where the step uses none.
    """

    input_ids: Int32
    cu_query_lens: Int32
    context_lens: Int32
    query_slots: Int32
    verify_rows: Int32
    cu_verify_lens: Int32
    draft_rows: Int32
    page_table: Int32
    temperature: Float32
    top_p: Float32
    min_p: Float32
    top_k: Int32
    seed: NDArray[np.int64]
    next_ids: Int32 | None = None
    extras: StepExtras | None = None

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The arrays by contract name, those that are there."""
        named = {name: array for name, array in vars(self).items() if name != "extras" and array is not None}
        return named | (dict(vars(self.extras)) if self.extras else {})


@dataclass(frozen=True)
class StepOutputs:
    """The outputs of one step but for the pages; as `hspec_trt.contract.STEP_OUTPUTS`.

    Attributes:
        draft_confidence: as `hspec_trt.contract.DRAFT_CONFIDENCE`, of the engines that give it.
        top_ids, top_logprobs: outputs of the extension ``top_logprobs``, in engines that have it.
    """

    emitted_ids: Int32
    emitted_lens: Int32
    emitted_logprobs: Float32
    draft_ids: Int32
    finite: NDArray[np.bool_]
    draft_confidence: Float32 | None = None
    top_ids: Int32 | None = None
    top_logprobs: Float32 | None = None


class Session(Protocol):
    """One loaded engine. Used by one thread at a time."""

    @property
    def limits(self) -> Limits:
        """What the engine can take."""

    @property
    def num_pages(self) -> int:
        """Pages P of the pool, the null page included; 0 before `allocate`."""

    def allocate(self, num_pages: int) -> None:
        """Make zeroed pools of `num_pages` pages, in place of those there were."""

    def step(self, inputs: StepInputs) -> StepOutputs:
        """Run one step. Raises `RequestError` R302 when the backend fails; the rows' pages are then undefined."""

    def scrub(self, pages: Int32) -> None:
        """Zero these pages: int32 ``[n]``, page numbers."""


class Pending(Protocol):
    """A step under way."""

    def wait(self) -> StepOutputs:
        """What it emitted. Raises `RequestError` R302 when the step failed."""


@runtime_checkable
class FollowingSession(Session, Protocol):
    """A session that starts steps without waiting for them, and can go on from what the device holds."""

    def submit(self, inputs: StepInputs) -> Pending:
        """Start a step; errors as `step`."""

    def follow(self, page_table: Int32, most_context: Int32) -> Pending:
        """Start the decode step after the last one, of the same rows with all their drafts.

        Args:
            page_table: int32 ``[R, M]``, pages for the longest text that can come.
            most_context: int32 ``[R]``, the most that `context_lens` can be by then.
        """
