# SPDX-License-Identifier: Apache-2.0
"""A session that computes: a small text model in NumPy that keeps its context in pages as the step contract says.

The next token depends on every token of the context, read through the page table, so a wrong page, a stale token or a
mixed-up row changes the text. Its drafter knows the true continuation and is right for as many drafts as it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hspec_trt import contract as c
from hspec_trt.errors import RequestError
from hspec_trt.runtime.noise import gumbel
from hspec_trt.runtime.session import Limits, StepExtras, StepInputs, StepOutputs
from hspec_trt.runtime.step_checks import check_step

HASH_PRIME = 1_000_003
HASH_BASE = 4099
NUM_CONTEXTS = 257
Accept = Callable[[int, int], int]


def raw_logprobs(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Log-probabilities of the unedited distribution."""
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def edit(logits: NDArray[np.float32], extras: StepExtras | None, cell: int) -> NDArray[np.float32]:
    """The logits of one row as the step's edits and masks leave them."""
    if extras is None:
        return logits
    edited, mine = logits.copy(), extras.edit_rows == cell
    ids, scales = extras.edit_ids[mine], extras.edit_scales[mine]
    old = edited[ids]
    edited[ids] = np.where(old > 0, old / scales, old * scales) + extras.edit_biases[mine]
    for mask in extras.token_masks[extras.mask_rows == cell]:
        edited = np.where(mask, edited, np.float32(-1e30))
    return edited


def draw(
    logits: NDArray[np.float32], position: int, params: Row, edited: NDArray[np.float32] | None = None
) -> tuple[int, float]:
    """The token at a position and its log-probability: filters by a plain sort, then Gumbel-max; ties to the lowest.

    Args:
        edited: logits to draw from, where they are not `logits`, whose log-probability counts.
    """
    logprobs = raw_logprobs(logits)
    logits = logits if edited is None else edited
    shifted = logits - logits.max()
    if params.temperature == 0.0:
        token = int(np.argmax(logits))
        return token, float(logprobs[token])
    z = shifted / np.float32(params.temperature)
    keep = np.ones(z.size, bool)
    if params.top_k:
        keep = z >= np.sort(z)[::-1][min(params.top_k, z.size) - 1]
    if params.top_p < 1.0:  # by mass of what top-k left
        weights = np.where(keep, np.exp(z), 0.0)
        order = np.argsort(-weights, kind="stable")
        mass = np.cumsum(weights[order]) / weights.sum()
        last = int(np.searchsorted(mass, params.top_p))
        keep &= z >= z[order[min(last, z.size - 1)]]
    keep &= z >= (np.log(params.min_p) if params.min_p > 0 else -np.inf)
    token = int(np.argmax(np.where(keep, z + gumbel(params.seed, position, np.arange(z.size)), -np.inf)))
    return token, float(logprobs[token])


@dataclass(frozen=True)
class Row:
    """Sampling options of one row."""

    temperature: float = 0.0
    top_p: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    seed: int = 0


class TextModel:
    """Next-token logits as a function of the last token and of a hash of the whole context.

    Args:
        cycle: tokens of a fixed cycle whose successor has a clear lead; empty for text without a pattern.
        never: tokens that are never drawn.
    """

    def __init__(
        self, vocab_size: int, *, spread: float = 2.0, cycle: tuple[int, ...] = (), never: tuple[int, ...] = ()
    ):
        rng = np.random.default_rng(7)
        self.vocab_size = vocab_size
        self._bigram = rng.normal(0, spread, (vocab_size, vocab_size)).astype(np.float32)
        self._context = rng.normal(0, spread, (NUM_CONTEXTS, vocab_size)).astype(np.float32)
        for left, right in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            self._bigram[left, right] += 100.0
        self._bigram[:, list(never)] = -1000.0
        self._powers = np.array([pow(HASH_BASE, i, HASH_PRIME) for i in range(1 << 15)], np.int64)

    def digest(self, ids: NDArray[np.int64]) -> int:
        return int(((ids + 1) * self._powers[: ids.size] % HASH_PRIME).sum() % HASH_PRIME)

    def extend(self, digest: int, size: int, token: int) -> int:
        return int((digest + (token + 1) * self._powers[size]) % HASH_PRIME)

    def logits(self, digest: int, last: int) -> NDArray[np.float32]:
        return self._bigram[last] + self._context[digest % NUM_CONTEXTS]

    def generate(self, prompt: list[int], count: int, row: Row) -> tuple[list[int], list[float]]:
        """REF: the text without any step, page or draft."""
        ids, logprobs = list(prompt), []
        for _ in range(count):
            logits = self.logits(self.digest(np.array(ids, np.int64)), ids[-1])
            token, logprob = draw(logits, len(ids), row)
            ids.append(token)
            logprobs.append(logprob)
        return ids[len(prompt) :], logprobs


def make_limits(**changes: object) -> Limits:
    """Small limits, no extension; `changes` by field name."""
    values: dict[str, object] = {
        "vocab_size": 61, "num_drafts": 4, "page_size": 4, "page_bytes": 64, "max_rows": 8, "max_tokens": 64,
        "max_seq_len": 128, "has_drafter": True, "draft_max_position": 128,
    }  # fmt: skip
    return Limits(**(values | changes))  # type: ignore[arg-type]


@dataclass
class ScriptedSession:
    """A `Session` over a `TextModel`.

    Attributes:
        accept: (seed, position of the anchor) to how many drafts are right.
        nan_token: a token after which a row's logits are not finite, as are the pages that hold it.
        fail_at: numbers of steps (from 0) that raise.
        sizes: (rows, tokens, drafted rows) of every step.
    """

    model: TextModel
    limits: Limits
    accept: Accept = lambda seed, position: 0
    nan_token: int | None = None
    fail_at: frozenset[int] = frozenset()
    num_pages: int = 0
    steps: int = 0
    sizes: list[tuple[int, int, int]] = field(default_factory=list)
    pages: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))

    def allocate(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.pages = np.zeros((num_pages, self.limits.page_size))

    def scrub(self, pages: NDArray[np.int32]) -> None:
        self.pages[pages] = 0.0

    def step(self, inputs: StepInputs) -> StepOutputs:
        check_step(inputs, self.limits, self.num_pages)
        self.steps += 1
        self.sizes.append((inputs.context_lens.size, int(inputs.cu_query_lens[-1]), inputs.draft_rows.size))
        failing = self.steps - 1 in self.fail_at
        self._append(inputs, poison=failing)
        if failing:
            raise RequestError("R302", "the scripted session fails at this step")
        rows, width = inputs.context_lens.size, self.limits.num_drafts + 1
        outputs = StepOutputs(
            np.full((rows, width), -1, np.int32),
            np.zeros(rows, np.int32),
            np.zeros((rows, width), np.float32),
            np.zeros((inputs.draft_rows.size, width - 1), np.int32),
            np.ones(rows, bool),
        )
        for row in range(rows):
            self._verify(inputs, outputs, row)
        if inputs.extras is not None and inputs.extras.top_rows.size:
            outputs = replace(outputs, **self._tops(inputs))
        for line, row in enumerate(inputs.draft_rows.tolist()):
            outputs.draft_ids[line] = self._draft(inputs, outputs, row)
        return outputs

    def _append(self, inputs: StepInputs, *, poison: bool) -> None:
        for row in range(inputs.context_lens.size):
            first, last = inputs.cu_query_lens[row : row + 2]
            ids = inputs.input_ids[first:last].astype(np.float64)
            if poison or self.nan_token is not None:
                ids[(ids == self.nan_token) | poison] = np.nan
            positions = inputs.context_lens[row] + np.arange(last - first)
            pages = inputs.page_table[row, positions // self.limits.page_size]
            assert (pages != c.NULL_PAGE).all(), "a token would be written to the null page"
            self.pages[pages, positions % self.limits.page_size] = ids

    def _verify(self, inputs: StepInputs, outputs: StepOutputs, row: int) -> None:
        first, last = inputs.cu_verify_lens[row : row + 2]
        if first == last:
            return
        content = self.pages[inputs.page_table[row]].ravel()
        if not np.isfinite(content).all():  # 0 x NaN is NaN: masked places poison a row too
            outputs.finite[row] = False
            outputs.emitted_lens[row] = 1
            outputs.emitted_ids[row, 0] = self.limits.vocab_size - 1
            return
        packed = inputs.verify_rows[first:last]
        sizes = inputs.context_lens[row] + packed - inputs.cu_query_lens[row] + 1
        for place, size in enumerate(sizes.tolist()):
            ids = content[:size].astype(np.int64)
            logits = self.model.logits(self.model.digest(ids), int(ids[-1]))
            token, logprob = draw(logits, size, _row(inputs, row), edit(logits, inputs.extras, int(first) + place))
            outputs.emitted_ids[row, place], outputs.emitted_logprobs[row, place] = token, logprob
            outputs.emitted_lens[row] = place + 1
            following = int(inputs.input_ids[packed[place] + 1]) if place + 1 < len(sizes) else -1
            if token != following:
                break

    def _tops(self, inputs: StepInputs) -> dict[str, NDArray]:
        assert inputs.extras is not None
        ids, logprobs = [], []
        for cell in inputs.extras.top_rows.tolist():
            row = int(np.searchsorted(inputs.cu_verify_lens, cell, side="right")) - 1
            content = self.pages[inputs.page_table[row]].ravel()
            size = int(inputs.context_lens[row] + inputs.verify_rows[cell] - inputs.cu_query_lens[row]) + 1
            text = content[:size].astype(np.int64)
            raw = raw_logprobs(self.model.logits(self.model.digest(text), int(text[-1])))
            best = np.argsort(-raw, kind="stable")[: c.MAX_TOP_LOGPROBS]
            ids.append(best)
            logprobs.append(raw[best])
        return {"top_ids": np.array(ids, np.int32), "top_logprobs": np.array(logprobs, np.float32)}

    def _draft(self, inputs: StepInputs, outputs: StepOutputs, row: int) -> list[int]:
        emitted = outputs.emitted_ids[row, : outputs.emitted_lens[row]]
        verify_len = int(np.diff(inputs.cu_verify_lens)[row])
        run = int(np.diff(inputs.cu_query_lens)[row]) - verify_len + 1
        size = int(inputs.context_lens[row]) + run
        content = self.pages[inputs.page_table[row]].ravel()[:size]
        if not outputs.finite[row] or not np.isfinite(content).all():
            return [0] * self.limits.num_drafts
        ids = [*content.astype(np.int64).tolist(), *emitted.tolist()]
        right = self.accept(int(inputs.seed[row]), len(ids) - 1)
        drafts, digest = [], self.model.digest(np.array(ids, np.int64))
        last = ids[-1]
        for place in range(self.limits.num_drafts):
            token, _ = draw(self.model.logits(digest, last), len(ids) + place, _row(inputs, row))
            last = token if place < right else (token + 1) % self.limits.vocab_size
            drafts.append(last)
            digest = self.model.extend(digest, len(ids) + place, last)
        return drafts


def _row(inputs: StepInputs, row: int) -> Row:
    return Row(
        float(inputs.temperature[row]),
        float(inputs.top_p[row]),
        float(inputs.min_p[row]),
        int(inputs.top_k[row]),
        int(inputs.seed[row]),
    )
