# SPDX-License-Identifier: Apache-2.0
"""A byte-level tokenizer.json of any size: three special tokens, then single bytes, the commonest first."""

from __future__ import annotations

import json
import string

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

UNK, BOS, EOS = "<unk>", "<s>", "</s>"
UNK_ID, BOS_ID, EOS_ID = 0, 1, 2
NUM_SPECIAL = 3
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def _byte_symbols() -> list[str]:
    """The 256 symbols of byte-level BPE, letters and punctuation first."""
    common = " " + string.ascii_lowercase + string.digits + ".,!?'-:;\n" + string.ascii_uppercase
    order = [ord(char) for char in common] + [byte for byte in range(256) if chr(byte) not in common]
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    symbol = {byte: chr(byte) for byte in printable} | {byte: chr(256 + rank) for rank, byte in enumerate(hidden)}
    return [symbol[byte] for byte in order]


def tiny_tokenizer(vocab_size: int) -> Tokenizer:
    """Ids 0 ``<unk>``, 1 ``<s>``, 2 ``</s>``, then bytes; below 259 ids rare bytes have none and are dropped."""
    symbols = _byte_symbols()[: vocab_size - NUM_SPECIAL]
    vocab = {token: index for index, token in enumerate([UNK, BOS, EOS, *symbols])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (UNK, BOS, EOS)])
    return tokenizer


def tokenizer_files(vocab_size: int) -> dict[str, bytes]:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS, "unk_token": UNK}
    return {
        "tokenizer.json": tiny_tokenizer(vocab_size).to_str().encode(),
        "tokenizer_config.json": json.dumps(config).encode(),
        "chat_template.jinja": CHAT_TEMPLATE.encode(),
    }
