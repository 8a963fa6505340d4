# SPDX-License-Identifier: Apache-2.0
"""Guided decoding: which tokens may come next under a grammar, per verify row. Stands on the library llguidance.

A draft that breaks the grammar ends the walk: the row before it masks it out, so it is never accepted and the rows
after it are never used. The matcher then goes back to the end of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hspec_trt.config.sampling import GuidedDecodingParams
from hspec_trt.errors import RequestError

if TYPE_CHECKING:
    import llguidance


class TextGuide:
    """The grammar of one answer, kept up with its text.

    Args:
        matcher: fresh.
        prompt_len: tokens before the text.
    """

    def __init__(self, matcher: llguidance.LLMatcher, vocab_size: int, prompt_len: int) -> None:
        self._matcher, self._vocab_size, self._committed = matcher, vocab_size, prompt_len

    def rows(self, text: NDArray[np.int32], drafts: Sequence[int]) -> list[NDArray[np.bool_]]:
        """Masks of the rows of one step, bool ``[V]`` each: one after the text, and one after each draft that fits.

        Args:
            text: int32 ``[n]``, prompt and output; each call extends the text of the one before.

        Raises:
            RequestError: R222 where the grammar library gives up.
        """
        self._matcher.consume_tokens(text[self._committed :].tolist())
        self._committed = len(text)
        masks = [self._mask()]
        walked = 0
        for draft in drafts:
            if not masks[-1][draft] or self._matcher.is_stopped() or not self._matcher.consume_token(draft):
                break
            walked += 1
            masks.append(self._mask())  # after the last token of a grammar: only an end token
        if walked:
            self._matcher.rollback(walked)
        if self._matcher.is_error():
            raise RequestError("R222", f"guided decoding failed: {self._matcher.get_error()}")
        return masks

    def _mask(self) -> NDArray[np.bool_]:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self._vocab_size].astype(bool)


class GuideMaker:
    """Makes guides for an engine's tokenizer.

    Args:
        tokenizer_file: tokenizer.json; None where the engine has none.
        eos_ids: the model's end tokens.
    """

    def __init__(self, tokenizer_file: Path | None, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._file, self._vocab_size, self._eos_ids = tokenizer_file, vocab_size, list(eos_ids)

    def make(self, params: GuidedDecodingParams, prompt_len: int) -> TextGuide:
        """The guide of one answer.

        Raises:
            RequestError: R220 a grammar that cannot be read, R221 no library, R223 no tokenizer or no end token.
        """
        try:
            import llguidance
        except ModuleNotFoundError as error:
            fix = "Install it: pip install 'hspec_trt[guided]'"
            raise RequestError("R221", "guided decoding needs llguidance", fix=fix) from error
        try:
            grammar = _grammar(params)
            matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
            fault = matcher.get_error() if matcher.is_error() else ""
        except ValueError as error:
            fault = str(error)
        if fault:
            raise RequestError("R220", f"guided_decoding cannot be read: {fault}", where="guided_decoding")
        return TextGuide(matcher, self._vocab_size, prompt_len)

    @cached_property
    def _tokenizer(self) -> llguidance.LLTokenizer:
        import llguidance

        if self._file is None or not self._eos_ids:
            found = "the engine has no tokenizer" if self._file is None else "the engine has no end token"
            raise RequestError("R223", found, needed="both, for guided decoding")
        return llguidance.LLTokenizer(str(self._file), n_vocab=self._vocab_size, eos_token=self._eos_ids)


def _grammar(params: GuidedDecodingParams) -> str:
    import llguidance

    matcher = llguidance.LLMatcher
    if params.regex is not None:
        return matcher.grammar_from_regex(params.regex)
    if params.grammar is not None:
        return matcher.grammar_from_lark(_lark(params.grammar))
    if params.choice:
        return matcher.grammar_from_regex("|".join(re.escape(text) for text in params.choice))
    return matcher.grammar_from_json_schema(json.loads(params.json) if params.json else {"type": "object"})


def _lark(grammar: str) -> str:
    """A grammar in Lark's syntax, from either of the two that are in use.

    Raises:
        ValueError: it cannot be read.
    """
    from llguidance.gbnf_to_lark import GbnfToLarkError, any_to_lark

    try:
        return str(any_to_lark(grammar))
    except GbnfToLarkError as error:
        raise ValueError(str(error)) from error
