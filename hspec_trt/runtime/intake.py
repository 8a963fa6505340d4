# SPDX-License-Identifier: Apache-2.0
"""From a request to a sequence: all checks, and what its options mean for drafts, stops and logits.

It knows the engine's limits and tokenizer, not the queue; safe to call from any thread.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence as SequenceOf

import numpy as np

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import RequestError
from hspec_trt.runtime.checks import MAX_SEED, check_params, check_prompt
from hspec_trt.runtime.detokenizer import Codec, TextStream
from hspec_trt.runtime.edits import TextEdits, wants_edits
from hspec_trt.runtime.guided import GuideMaker
from hspec_trt.runtime.lookup import HostDrafts, NgramIndex
from hspec_trt.runtime.request import Sequence, Sink
from hspec_trt.runtime.session import Limits
from hspec_trt.runtime.shaper import Shaper
from hspec_trt.runtime.stop import StopRules


class Intake:
    """Makes the sequences of one engine.

    Args:
        longest: tokens that one request can reach.
        eos_ids: the model's end tokens.
        codec: None where the engine has no tokenizer.
    """

    def __init__(
        self, limits: Limits, longest: int, eos_ids: frozenset[int], codec: Codec | None, guides: GuideMaker
    ) -> None:
        self._limits, self._longest, self._eos_ids = limits, longest, eos_ids
        self._codec, self._guides = codec, guides
        self._numbers = itertools.count(1)

    def make(
        self,
        prompt_ids: SequenceOf[int],
        params: SamplingParams,
        sink: Sink,
        *,
        streaming: bool = False,
        priority: int = 0,
        index: int = 0,
        host_drafts: HostDrafts | None = None,
    ) -> Sequence:
        """Check one request and make its sequence.

        Args:
            index: which of the request's `n` answers.
            host_drafts: makes the drafts, in place of what the options say.

        Raises:
            RequestError: R1xx, R2xx.
        """
        check_params(params, self._limits)
        check_prompt(prompt_ids, params.max_tokens, self._limits, self._longest)
        self._check_text_options(params)
        room = self._longest - len(prompt_ids)
        tokens = np.array(prompt_ids, np.int32)
        rules = StopRules(frozenset() if params.ignore_eos else self._eos_ids, frozenset(params.stop_token_ids))
        source = params.draft_source or ("drafter" if self._limits.has_drafter else "prompt_lookup")
        if host_drafts is None and source != "drafter" and params.drafts != "off":
            host_drafts = NgramIndex()
        return Sequence(
            number=next(self._numbers),
            tokens=tokens,
            prompt_len=len(tokens),
            end_len=len(tokens) + min(params.max_tokens or room, room),
            params=params,
            seed=secrets.randbelow(MAX_SEED) if params.seed is None else (params.seed + index) % MAX_SEED,
            rules=rules,
            sink=sink,
            streaming=streaming,
            text=TextStream(self._codec, params.stop) if params.stop and self._codec else None,
            lookup=host_drafts,
            uses_drafter=source != "prompt_lookup" and self._limits.has_drafter,
            shaper=self._shaper(params, tokens, rules),
            priority=priority,
        )

    def _check_text_options(self, params: SamplingParams) -> None:
        for name, code, instead in (("stop", "R206", "stop_token_ids"), ("bad_words", "R216", "logit_bias")):
            if getattr(params, name) and self._codec is None:
                raise RequestError(code, f"{name} needs a tokenizer, and the engine has none", fix=f"Use {instead}")

    def _shaper(self, params: SamplingParams, prompt: np.ndarray, rules: StopRules) -> Shaper:
        shaper = Shaper(num_top=params.logprobs)
        if wants_edits(params):
            end_ids = self._eos_ids | rules.stop_ids
            shaper.edits = TextEdits(params, prompt, end_ids, self._bad_word_ids(params.bad_words))
        if params.guided_decoding is not None:
            shaper.guide = self._guides.make(params.guided_decoding, len(prompt))
        return shaper

    def _bad_word_ids(self, words: SequenceOf[str]) -> list[list[int]]:
        """Token sequences of the words, at the start of a text and after a space."""
        found: list[list[int]] = []
        for word in words:
            for text in (word, " " + word.lstrip()):
                ids = self._codec.encode(text, special=False) if self._codec else []
                if ids and ids not in found:
                    found.append(ids)
        return found
