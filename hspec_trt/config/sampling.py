# SPDX-License-Identifier: Apache-2.0
"""Options of one request, under the names that TensorRT-LLM's and vLLM's ``SamplingParams`` use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Drafting = Literal["on", "off", "auto"]
DRAFTING: tuple[Drafting, ...] = ("on", "off", "auto")
DraftSource = Literal["drafter", "prompt_lookup", "both"]
DRAFT_SOURCES: tuple[DraftSource, ...] = ("drafter", "prompt_lookup", "both")


@dataclass(frozen=True)
class GuidedDecodingParams:
    """What a text must look like; exactly one of these.

    Attributes:
        json: a JSON schema, as text.
        json_object: any JSON object.
        regex: a regular expression for the whole text.
        grammar: a grammar in Lark's syntax, with the rule ``start``; or in EBNF (GBNF) with ``::=`` and ``root``.
        choice: one of these strings.
    """

    json: str | None = None
    json_object: bool = False
    regex: str | None = None
    grammar: str | None = None
    choice: tuple[str, ...] = ()


@dataclass(frozen=True)
class SamplingParams:
    """How one request is sampled and when it ends.

    The text is a function of prompt, options and `seed` alone: drafts change how fast it comes, never what it is.
    A token that completes a stop string is kept in `token_ids` and counted; the text is cut before the string. An
    end token is kept and counted too, and has no text.

    Attributes:
        max_tokens: new tokens at most; None runs to the engine's ``max_seq_len``.
        temperature: 0 is greedy; unset is 1.
        top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
        seed: 0 <= seed < 2**63; None draws one, so that equal requests differ.
        n: independent answers to one prompt; answer i has seed ``seed + i``.
        stop: strings that end the text; the string itself is not part of it.
        stop_token_ids: ids that end the text, besides the model's own.
        ignore_eos: do not end at the model's end tokens.
        drafts: "on", "off", or "auto" (as many drafts a step as pay off).
        num_drafts: drafts a step at most, 1 to the engine's own number G; None is G.
        draft_source: the engine's drafter, n-gram look-up in the text so far (needs no drafter), or "both": look-up,
            and the drafter where nothing matches. None takes the drafter where there is one.
        min_tokens: new tokens before an end token or one of `stop_token_ids` can be drawn.
        repetition_penalty: above 0; divides a positive logit and multiplies a negative one, for tokens of prompt and
            text. 1 is off.
        presence_penalty, frequency_penalty: taken from the logit of a token of the text, once, or as often as it is
            there. 0 is off.
        logit_bias: pairs of token id and what is added to its logit.
        bad_words: strings whose tokens are never completed.
        logprobs: most likely tokens to report for each position, 0 to 20, with their log-probabilities under the
            target's raw distribution.
        guided_decoding: what the text must look like.

    All of these act on the target's logits with the text before each of them, so drafts change nothing here either.
    What an engine was built without is refused by name (R210).
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    drafts: Drafting = "auto"
    num_drafts: int | None = None
    draft_source: DraftSource | None = None
    min_tokens: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[str, ...] = ()
    logprobs: int = 0
    guided_decoding: GuidedDecodingParams | None = None
