# SPDX-License-Identifier: Apache-2.0
"""Looks at the tokenizer of a target before a build: a damaged one is refused, a missing one is said.

It does not tokenise; `hspec_trt.runtime` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenizers import Tokenizer

from hspec_trt.checkpoint.files import CheckpointFolder
from hspec_trt.errors import CheckpointError

TOKENIZER: Final = "tokenizer.json"
_OTHERS: Final = ("tokenizer.model", "vocab.json", "vocab.txt")


def check_tokenizer(files: Mapping[str, bytes], folder: CheckpointFolder, vocab_size: int) -> tuple[str, ...]:
    """Warnings about the tokenizer of a folder.

    Raises:
        CheckpointError: C027 for a tokenizer.json that cannot be read.
    """
    if TOKENIZER not in files:
        others = [name for name in _OTHERS if folder.has(name)]
        instead = f", only {others[0]}: save it as tokenizer.json with transformers" if others else ""
        return (f"no {TOKENIZER}{instead}; prompts are given as token ids",)
    largest = max(read_tokenizer(files[TOKENIZER]).get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= vocab_size:
        return (f"{TOKENIZER} has ids up to {largest}, the model only 0..{vocab_size - 1}: such prompts are refused",)
    return ()


def read_tokenizer(data: bytes) -> Tokenizer:
    """Parse a tokenizer.json.

    Raises:
        CheckpointError: C027.
    """
    try:
        return Tokenizer.from_str(data.decode())
    except UnicodeDecodeError:
        raise CheckpointError("C027", f"{TOKENIZER} is not UTF-8") from None
    except Exception as error:
        # The library raises plain Exception for every fault of the file.
        raise CheckpointError("C027", f"{TOKENIZER} cannot be read: {error}") from None
