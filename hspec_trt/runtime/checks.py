# SPDX-License-Identifier: Apache-2.0
"""Checks one request against an engine before it is admitted, and reports all its faults together.

It knows the limits and the options, not the queue: whether there is room now is the scheduler's business.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hspec_trt.config.build import ExtensionName
from hspec_trt.config.sampling import DRAFT_SOURCES, DRAFTING, SamplingParams
from hspec_trt.contract import MAX_TOP_LOGPROBS
from hspec_trt.errors import Faults, RequestError
from hspec_trt.runtime.session import Limits

MAX_SEED: Final = 2**63
MAX_STOPS: Final = 64
MAX_SHOWN: Final = 200
"""Characters of a value that a message shows."""


@dataclass(frozen=True)
class _Range:
    """A numeric option: its code, its range in words, and whether it is whole."""

    code: str
    low: float
    high: float
    words: str
    whole: bool = False
    optional: bool = False
    above_low: bool = False

    def holds(self, value: object) -> bool:
        """True where `value` is a number of the right kind in the range."""
        if value is None:
            return self.optional
        if isinstance(value, (bool, np.bool_)):
            return False
        if not isinstance(value, numbers.Integral if self.whole else numbers.Real):
            return False
        inside = self.low < value if self.above_low else self.low <= value  # type: ignore[operator]
        return bool(inside and value <= self.high)


_TINY: Final = float(np.finfo(np.float32).tiny)
_RANGES: Final = {
    "max_tokens": _Range("R106", 1, math.inf, "a whole number of at least 1", whole=True, optional=True),
    "temperature": _Range("R201", 0.0, 1e4, "0 (greedy) to 10000"),
    "top_p": _Range("R202", _TINY, 1.0, "above 0, at most 1 (off)"),
    "min_p": _Range("R203", 0.0, 1.0, "0 (off) to 1"),
    "top_k": _Range("R204", 0, 2**31 - 1, "0 (off) or a whole number below 2**31", whole=True),
    "seed": _Range("R205", 0, MAX_SEED - 1, "a whole number from 0 to 2**63 - 1", whole=True, optional=True),
    "n": _Range("R209", 1, 1024, "a whole number from 1 to 1024", whole=True),
    "min_tokens": _Range("R211", 0, math.inf, "a whole number, 0 is off", whole=True),
    "repetition_penalty": _Range("R212", 0.0, 100.0, "above 0, at most 100; 1 is off", above_low=True),
    "presence_penalty": _Range("R213", -100.0, 100.0, "-100 to 100; 0 is off"),
    "frequency_penalty": _Range("R214", -100.0, 100.0, "-100 to 100; 0 is off"),
    "logprobs": _Range("R217", 0, MAX_TOP_LOGPROBS, f"a whole number from 0 to {MAX_TOP_LOGPROBS}", whole=True),
}
_BIAS: Final = _Range("R215", -1e4, 1e4, "pairs of a token id and a number from -10000 to 10000")
OPTION_OF_CODE: Final = {spec.code: name for name, spec in _RANGES.items()} | {
    "R206": "stop",
    "R207": "stop_token_ids",
    "R215": "logit_bias",
    "R216": "bad_words",
}
"""The option that a code is about, where there is one."""
_EXTENSION_OF: Final[dict[str, ExtensionName]] = {
    "min_tokens": "logit_edits",
    "repetition_penalty": "logit_edits",
    "presence_penalty": "logit_edits",
    "frequency_penalty": "logit_edits",
    "logit_bias": "logit_edits",
    "bad_words": "logit_edits",
    "logprobs": "top_logprobs",
    "guided_decoding": "token_masks",
}
"""Options that need an extension of the step."""
_UNSET: Final = SamplingParams()


def check_params(params: SamplingParams, limits: Limits) -> None:
    """Check the options of a request.

    Raises:
        RequestError: R106, R201 to R210; a `FaultGroup` of them where several are wrong.
    """
    faults = Faults()
    for fault in _param_faults(params, limits):
        faults.add(fault)
    faults.raise_any()


def check_prompt(prompt_ids: Sequence[int], max_tokens: int | None, limits: Limits, longest: int) -> None:
    """Check the token ids of a prompt.

    Args:
        prompt_ids: the prompt's ids, of whatever type the caller gave.
        max_tokens: new tokens asked for; None is as many as fit.
        longest: tokens that one request may reach: ``max_seq_len``, or less where the page pool is smaller.

    Raises:
        RequestError: R101 too long, R102 empty, R103 outside the vocabulary, R104 not whole numbers.
    """
    if len(prompt_ids) == 0:
        raise RequestError("R102", "the prompt has no tokens", needed="at least one")
    for index, token in enumerate(prompt_ids):
        if isinstance(token, (bool, np.bool_)) or not isinstance(token, numbers.Integral):
            raise RequestError("R104", f"prompt token {_shown(token)} at index {index}", needed="a whole number")
        if not 0 <= token < limits.vocab_size:
            found = f"prompt token {_shown(token)} at index {index} is outside the vocabulary [0, {limits.vocab_size})"
            raise RequestError("R103", found)
    check_length(len(prompt_ids), max_tokens, longest)


def check_length(prompt_len: int, max_tokens: int | None, longest: int) -> None:
    """Refuse what cannot fit, naming the largest number of new tokens that does (R101)."""
    room = longest - prompt_len
    if room < 1:
        found = f"prompt {prompt_len} leaves no room for a new token in max_seq_len {longest}"
        raise RequestError("R101", found, fix=f"The longest allowed prompt is {longest - 1}")
    if max_tokens is not None and max_tokens > room:
        found = f"prompt {prompt_len} + max_tokens {max_tokens} > max_seq_len {longest}"
        raise RequestError("R101", found, fix=f"The longest allowed max_tokens is {room}")


def _is_text(value: object) -> bool:
    """True for a string that is not empty and has no half characters (lone surrogates)."""
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # a number with so many digits that Python does not write it
        return "too long to be shown"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ..."


def _param_faults(params: SamplingParams, limits: Limits) -> Iterator[RequestError]:
    for name, spec in _RANGES.items():
        value = getattr(params, name)
        if not spec.holds(value):
            yield RequestError(spec.code, f"{name} is {_shown(value)}", needed=spec.words)
    most, least = params.max_tokens, params.min_tokens
    if most is not None and _RANGES["max_tokens"].holds(most) and _RANGES["min_tokens"].holds(least) and least > most:
        yield RequestError("R211", f"min_tokens is {least}", needed=f"at most max_tokens, {most}")
    if len(params.stop) > MAX_STOPS or any(not _is_text(stop) or "\ufffd" in stop for stop in params.stop):
        needed = f"at most {MAX_STOPS} strings of Unicode text, none empty or with U+FFFD"
        yield RequestError("R206", f"stop is {_shown(params.stop)}", needed=needed)
    if any(isinstance(i, bool) or not isinstance(i, numbers.Integral) for i in params.stop_token_ids) or any(
        not 0 <= i < limits.vocab_size for i in params.stop_token_ids
    ):
        needed = f"whole numbers in [0, {limits.vocab_size})"
        yield RequestError("R207", f"stop_token_ids is {_shown(params.stop_token_ids)}", needed=needed)
    yield from _draft_faults(params, limits)
    yield from _edit_faults(params, limits)
    for name, extension in _EXTENSION_OF.items():
        if getattr(params, name) != getattr(_UNSET, name) and extension not in limits.extensions:
            found = f"{name} = {_shown(getattr(params, name))} is not supported by this engine"
            needed = f"an engine built with the extension {extension}"
            yield RequestError("R210", found, needed=needed, fix=f"Leave {name} unset")


def _edit_faults(params: SamplingParams, limits: Limits) -> Iterator[RequestError]:
    pairs = [pair for pair in params.logit_bias if isinstance(pair, tuple) and len(pair) == 2]
    ids = [pair[0] for pair in pairs]
    good_ids = all(isinstance(i, numbers.Integral) and 0 <= i < limits.vocab_size for i in ids)
    if len(pairs) < len(params.logit_bias) or not good_ids or not all(_BIAS.holds(pair[1]) for pair in pairs):
        needed = f"{_BIAS.words}; ids are in [0, {limits.vocab_size})"
        yield RequestError(_BIAS.code, f"logit_bias is {_shown(params.logit_bias)}", needed=needed)
    if not all(map(_is_text, params.bad_words)):
        found = f"bad_words is {_shown(params.bad_words)}"
        yield RequestError("R216", found, needed="strings of Unicode text, none empty")
    guide = params.guided_decoding
    if guide is not None:
        given = sum(map(bool, (guide.json, guide.json_object, guide.regex, guide.grammar, guide.choice)))
        if given != 1:
            yield RequestError("R220", f"guided_decoding gives {given} forms", needed="exactly one")
        if params.ignore_eos:
            yield RequestError("R220", "guided_decoding with ignore_eos", needed="end tokens: the text ends with one")


def _draft_faults(params: SamplingParams, limits: Limits) -> Iterator[RequestError]:
    if params.drafts not in DRAFTING:
        yield RequestError("R208", f"drafts is {_shown(params.drafts)}", needed=f"one of {', '.join(DRAFTING)}")
    if params.draft_source is not None and params.draft_source not in DRAFT_SOURCES:
        needed = f"one of {', '.join(DRAFT_SOURCES)}"
        yield RequestError("R208", f"draft_source is {_shown(params.draft_source)}", needed=needed)
    most = params.num_drafts
    if most is not None and (type(most) is not int or not 1 <= most <= limits.num_drafts):
        needed = f"1 to {limits.num_drafts}, what the engine was built for"
        yield RequestError("R208", f"num_drafts is {_shown(most)}", needed=needed, fix="Use drafts='off' for none")
    wants_drafter = params.draft_source in ("drafter", "both") and params.drafts != "off"
    if wants_drafter and not limits.has_drafter:
        found = f"draft_source is {_shown(params.draft_source)}, but the engine has no drafter"
        yield RequestError("R208", found, fix="Use draft_source='prompt_lookup', or drafts='off'")
