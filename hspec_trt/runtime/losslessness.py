# SPDX-License-Identifier: Apache-2.0
"""The check behind ``hspec-trt verify``: the same text with drafts, without, and with drafts of every quality.

On ONNX Runtime the texts must be equal. Elsewhere, other matrix sizes round differently, and a first difference is
excused where the two scores are closer than `NEAR_TIE_BOUND`; each is reported with both scores either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from hspec_trt.config.build import Backend
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.lookup import HostDrafts, ScriptedDrafts
from hspec_trt.runtime.noise import gumbel
from hspec_trt.runtime.request import Update
from hspec_trt.runtime.stats import DraftStats

NEAR_TIE_BOUND: Final = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 2.5e-1}
"""Scores (log-probability over temperature, plus noise) that differ by less count as a tie on a GPU: about four
rounding steps of a logit of size 16 to 32 in the engine's type."""
EXACT_BACKENDS: Final[tuple[Backend, ...]] = ("onnxruntime",)
TEMPERATURES: Final = (0.0, 0.7, 1.3)


@dataclass(frozen=True)
class Scored:
    """A token, and its score at the place where two texts part."""

    token: int
    score: float


@dataclass(frozen=True)
class Difference:
    """Where two texts part.

    Attributes:
        position: of the token in the whole sequence.
        without, with_drafts: what was said there; None where that text had ended.
    """

    position: int
    without: Scored | None
    with_drafts: Scored | None

    @property
    def gap(self) -> float:
        """Distance of the two scores; infinite where one text had ended."""
        if self.without is None or self.with_drafts is None:
            return float("inf")
        return abs(self.without.score - self.with_drafts.score)


@dataclass(frozen=True)
class Check:
    """One comparison with the text without drafts.

    Attributes:
        drafts: "drafter", or "scripted a": the first a drafts of every step are right.
        prompt: number of the prompt.
        accepted_length: mean tokens a step.
    """

    drafts: str
    prompt: int
    temperature: float
    num_tokens: int
    accepted_length: float
    difference: Difference | None
    bound: float

    @property
    def passed(self) -> bool:
        """True where the texts are equal, or part at a near tie."""
        return self.difference is None or self.difference.gap < self.bound

    def __str__(self) -> str:
        where = f"prompt {self.prompt}, temperature {self.temperature}, drafts {self.drafts}"
        if self.difference is None:
            return f"equal: {where}, {self.num_tokens} tokens"
        gap, position = self.difference.gap, self.difference.position
        if self.passed:
            return f"near tie at pos {position}: gap {gap:.2g} < {self.bound:.2g} bound ({where})"
        text = f"MISMATCH at pos {position}: gap {gap:.2g} > {self.bound:.2g} bound ({where})"
        return f"{text}: without drafts {self.difference.without}, with {self.difference.with_drafts}"


@dataclass
class _Said:
    """What one request said."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    drafts: DraftStats = field(default_factory=DraftStats)

    def take(self, update: Update) -> None:
        if update.error is not None:
            raise update.error
        self.ids += update.token_ids
        self.logprobs += update.logprobs
        self.drafts = update.drafts or self.drafts


def bound_for(backend: Backend, dtype: str) -> float:
    """Gap of two scores below which a first difference is excused; 0 where texts must be equal."""
    return 0.0 if backend in EXACT_BACKENDS else NEAR_TIE_BOUND[dtype]


def own_prompts(core: EngineCore, *, count: int = 6, seed: int = 0) -> list[list[int]]:
    """Prompts of random tokens: one token, a page, a page and one, and some between."""
    limits = core.session.limits
    rng = np.random.default_rng(seed)
    longest = core.scheduler.longest // 2
    sizes = [1, limits.page_size, limits.page_size + 1, *rng.integers(2, 48, size=max(count - 3, 0)).tolist()]
    return [rng.integers(0, limits.vocab_size, size=max(min(size, longest), 1)).tolist() for size in sizes[:count]]


def verify(
    core: EngineCore,
    prompts: Sequence[Sequence[int]],
    *,
    bound: float,
    max_tokens: int = 48,
    temperatures: Sequence[float] = TEMPERATURES,
    seed: int = 1234,
) -> Iterator[Check]:
    """Compare texts with and without drafts, one check at a time.

    Args:
        core: an idle engine; nothing else may use it meanwhile.
        prompts: token ids.
        bound: see `bound_for`.

    Yields:
        A `Check` for the drafter (where the engine has one) and for each scripted accepted length 0 to G.
    """
    limits = core.session.limits
    for number, prompt in enumerate(prompts):
        room = max(min(max_tokens, core.scheduler.longest - len(prompt)), 1)  # none at all is refused as too long
        for temperature in temperatures:
            params = SamplingParams(max_tokens=room, temperature=temperature, seed=seed + number, drafts="off")
            plain = _run(core, prompt, params, None)
            known = np.array([*prompt, *plain.ids], np.int32)
            sources: dict[str, HostDrafts | None] = {"drafter": None} if limits.has_drafter else {}
            if limits.num_drafts:
                scripts = range(limits.num_drafts + 1)
                sources |= {f"scripted {a}": ScriptedDrafts(known, a, limits.vocab_size) for a in scripts}
            for name, source in sources.items():
                said = _run(core, prompt, replace(params, drafts="on"), source)
                difference = _first_difference(len(prompt), plain, said, params)
                length = said.drafts.accepted_length
                yield Check(name, number, temperature, len(said.ids), length, difference, bound)


def _run(core: EngineCore, prompt: Sequence[int], params: SamplingParams, source: HostDrafts | None) -> _Said:
    said = _Said()
    core.add(core.make(prompt, params, said.take, host_drafts=source))
    while not core.is_idle:
        core.step()
    return said


def _first_difference(prompt_len: int, plain: _Said, other: _Said, params: SamplingParams) -> Difference | None:
    if plain.ids == other.ids:
        return None
    pairs = enumerate(zip(plain.ids, other.ids, strict=False))
    index = next((i for i, (a, b) in pairs if a != b), min(len(plain.ids), len(other.ids)))
    position = prompt_len + index
    return Difference(position, _scored(plain, index, position, params), _scored(other, index, position, params))


def _scored(said: _Said, index: int, position: int, params: SamplingParams) -> Scored | None:
    """A token's score as the sampler sees it, up to what all tokens of the row share."""
    if index >= len(said.ids):
        return None
    token, logprob = said.ids[index], said.logprobs[index]
    if params.temperature == 0.0:
        return Scored(token, logprob)
    noise = float(gumbel(params.seed or 0, position, np.array([token]))[0])
    return Scored(token, logprob / params.temperature + noise)
