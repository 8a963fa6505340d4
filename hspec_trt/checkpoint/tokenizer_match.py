# SPDX-License-Identifier: Apache-2.0
"""Compares two tokenizers id by id; sizes alone say nothing.

Owns what of a tokenizer.json counts as a token. It tokenises nothing.
"""

from __future__ import annotations

from typing import Final

from hspec_trt.checkpoint.files import MEBIBYTE
from hspec_trt.checkpoint.json_text import JsonObject, parse_object
from hspec_trt.errors import DrafterError

MAX_TOKENIZER_BYTES: Final = 256 * MEBIBYTE
_FIX: Final = "The drafter was trained for another vocabulary; pass --allow-other-tokenizer if you know better"


def check_same_tokens(target: bytes, drafter: bytes) -> None:
    """Refuse a drafter whose tokenizer.json gives another string to an id that both have (D111).

    A token that only one of them has (a mask token that training added) is no difference.

    Args:
        target, drafter: the files' bytes.
    """
    theirs = _tokens(parse_object(target, where="the target's tokenizer.json"))
    ours = _tokens(parse_object(drafter, where="the drafter's tokenizer.json"))
    for token_id in sorted(theirs.keys() & ours.keys()):
        if theirs[token_id] != ours[token_id]:
            found = f"tokenizers differ at id {token_id}: target {theirs[token_id]!r}, drafter {ours[token_id]!r}"
            raise DrafterError("D111", found, needed="one vocabulary", where="tokenizer.json", fix=_FIX)


def _tokens(tokenizer: JsonObject) -> dict[int, str]:
    """String of each id: the model's vocabulary (object or list of pairs) under the added tokens."""
    model = tokenizer.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    tokens: dict[int, str] = {}
    if isinstance(vocab, dict):
        tokens = {token_id: text for text, token_id in vocab.items() if isinstance(token_id, int)}
    elif isinstance(vocab, list):
        pairs = [item for item in vocab if isinstance(item, list) and item]
        tokens = {token_id: str(item[0]) for token_id, item in enumerate(pairs)}
    added = tokenizer.get("added_tokens")
    for entry in added if isinstance(added, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("id"), int) and isinstance(entry.get("content"), str):
            tokens[entry["id"]] = entry["content"]  # type: ignore[index,assignment]
    return tokens
