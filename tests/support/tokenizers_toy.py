# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers of the kinds that models use, built in memory: byte level, byte fallback, word pieces, metaspace."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from hspec_trt.runtime.tokenizer import Tokenizer as OurTokenizer

SPECIAL = "<|end|>"


def byte_level() -> Tokenizer:
    """256 single bytes, some merges (two of them parts of characters), and an end token, the last id."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: index for index, char in enumerate(alphabet)}
    merges: list[tuple[str, str]] = []

    def visible(data: bytes) -> str:
        return "".join(_BYTE_CHARS[byte] for byte in data)

    pairs = (
        (b"E", b"N"),
        (b"N", b"D"),
        (b"x", b"EN"),
        (b" ", b"a"),
        (b"\xf0", b"\x9f"),
        (b"\x98", b"\x80"),
        (b"a", b"\xe4"),
    )
    for left, right in pairs:
        merges.append((visible(left), visible(right)))
        vocab[visible(left + right)] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _with_special(tokenizer)


def byte_fallback() -> Tokenizer:
    """Like Llama 2: pieces with the metaspace mark, byte tokens joined and replaced as a run, first space stripped."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "▁the", "é", ".", "▁▁", "END"]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=[("▁", "a"), ("▁", "▁")],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return _with_special(tokenizer)


def word_piece() -> Tokenizer:
    """Like BERT: words and ``##`` ends, spaces put between and taken away before punctuation."""
    pieces = ["[UNK]", "hello", "##s", "##ing", "dog", ".", ",", "'", "s", "do", "n't", "END"]
    tokenizer = Tokenizer(models.WordPiece(vocab={p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    return _with_special(tokenizer)


def metaspace() -> Tokenizer:
    """Like T5: pieces with a mark for the space, the first of which is dropped."""
    pieces = ["▁", "▁hello", "▁dog", "s", "ing", "▁▁", ".", "é", "END", "EN", "D"]
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0))
    tokenizer.decoder = decoders.Metaspace()
    return _with_special(tokenizer)


KINDS = {"byte_level": byte_level, "byte_fallback": byte_fallback, "word_piece": word_piece, "metaspace": metaspace}


def ours(kind: str) -> OurTokenizer:
    """The runtime's tokenizer over one of the toys."""
    return OurTokenizer(KINDS[kind]().to_str().encode())


def byte_ids(text: str | bytes) -> list[int]:
    """Ids of the single bytes of a text in `byte_level`."""
    vocab = byte_level().get_vocab()
    data = text.encode() if isinstance(text, str) else text
    return [vocab[_BYTE_CHARS[byte]] for byte in data]


def _with_special(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(SPECIAL, special=True, normalized=False)])
    return tokenizer


def _byte_chars() -> dict[int, str]:
    """The visible character that byte-level tokenizers write for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars = {byte: chr(byte) for byte in plain}
    rest = (byte for byte in range(256) if byte not in chars)
    return chars | {byte: chr(256 + index) for index, byte in enumerate(rest)}


_BYTE_CHARS = _byte_chars()
