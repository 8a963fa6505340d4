# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of a drafter: its head, its map to target ids, its mask token.

Owns the checks of ``d2t`` / ``t2d`` (D110, D112) and of the mask token (D120 to D122). ``d2t`` holds offsets:
``target_id = draft_id + d2t[draft_id]``, in ascending target order.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hspec_trt.checkpoint.formats.layout import DrafterSource

_DEAD_NORM: Final = 1e-4
_INTEGERS: Final = ("int32", "int64")


def read_draft_vocab(source: DrafterSource, stated: int | None, vocab_size: int) -> int:
    """Rows of the draft head, and the checks that go with them; faults are noted in `source`.

    Args:
        stated: ``draft_vocab_size``; None where the format has no such field (the full vocabulary then).
    """
    draft_vocab = vocab_size if stated is None else stated
    head = source.tensors.get("lm_head.weight")
    if draft_vocab > vocab_size:
        found = f"draft_vocab_size {draft_vocab} is more than vocab_size {vocab_size}"
        source.fault("D110", found, needed="at most that", name="draft_vocab_size")
    elif draft_vocab < vocab_size:
        _check_reduced(source, draft_vocab, vocab_size)
    elif "d2t" in source.tensors and np.any(source.tensors["d2t"].read()):
        source.fault("D112", f"d2t maps ids although the draft vocabulary is the full one, {vocab_size}", name="d2t")
    own = f"own ({head.shape[0]} rows)" if head is not None else "the target's"
    mapped = " via d2t offsets" if draft_vocab < vocab_size else ""
    source.notes.append(f"drafter lm_head: {own}{mapped}")
    source.notes.append(
        f"drafter embedding: {'own' if 'embed_tokens.weight' in source.tensors else 'the target' + chr(39) + 's'}"
    )
    return draft_vocab


def _check_reduced(source: DrafterSource, draft_vocab: int, vocab_size: int) -> None:
    if "d2t" not in source.tensors:
        found = f"draft_vocab_size {draft_vocab} < vocab {vocab_size}, but the checkpoint has no d2t"
        source.fault("D110", found, needed="d2t, to map draft ids to target ids")
        return
    tensor = source.tensors["d2t"]
    if tensor.dtype.name not in _INTEGERS or tensor.shape != (draft_vocab,):
        found = f"d2t is {tensor.dtype.name} {list(tensor.shape)}"
        source.fault("D112", found, needed=f"int64 [{draft_vocab}]", name="d2t")
        return
    fault = _offsets_fault(tensor.read().astype(np.int64), vocab_size, _chosen(source, vocab_size))
    if fault:
        source.fault("D112", fault, needed="offsets: target id = draft id + d2t[draft id]", name="d2t")


def _chosen(source: DrafterSource, vocab_size: int) -> NDArray[np.int64] | None:
    """Target ids that t2d marks, in order; None without a usable t2d."""
    tensor = source.tensors.get("t2d")
    if tensor is None:
        return None
    if tensor.dtype.name != "bool" or tensor.shape != (vocab_size,):
        found = f"t2d is {tensor.dtype.name} {list(tensor.shape)}"
        source.fault("D112", found, needed=f"bool [{vocab_size}]", name="t2d")
        return None
    return np.flatnonzero(tensor.read()).astype(np.int64)


def _offsets_fault(d2t: NDArray[np.int64], vocab_size: int, chosen: NDArray[np.int64] | None) -> str:
    """What is wrong with d2t, with its first bad row; empty if nothing is."""
    ids = np.arange(len(d2t)) + d2t
    absolute = chosen is not None and np.array_equal(d2t, chosen)
    if absolute or np.array_equal(d2t, np.arange(len(d2t))):
        return "d2t holds absolute target ids"
    if not d2t.any():
        return "d2t is all zero: the draft vocabulary would be the first tokens of the target's"
    outside = np.flatnonzero((ids < 0) | (ids >= vocab_size))
    if len(outside):
        return f"d2t[{outside[0]}] = {d2t[outside[0]]} gives target id {ids[outside[0]]}, outside [0, {vocab_size})"
    falling = np.flatnonzero(np.diff(ids) <= 0)
    if len(falling):
        row = falling[0] + 1
        return f"d2t[{row}] = {d2t[row]} gives target id {ids[row]} after {ids[row - 1]}: ids must ascend"
    if chosen is None:
        return ""
    if len(chosen) != len(ids):
        return f"t2d marks {len(chosen)} tokens, d2t has {len(ids)} rows"
    differ = np.flatnonzero(chosen != ids)
    if len(differ):
        row = differ[0]
        return f"d2t[{row}] = {d2t[row]} gives target id {ids[row]}, t2d says {chosen[row]}"
    return ""


def read_mask_token(source: DrafterSource, stated: int | None, vocab_size: int, *, own_vector: bool = False) -> int:
    """The mask token: the user's answer, else the checkpoint's; never a default (D120, D122; warning D121).

    Args:
        stated: as the checkpoint has it.
        own_vector: the checkpoint brings a vector for the mask slots, so the embedding row is not looked at.
    """
    token = stated if source.options.mask_token_id is None else source.options.mask_token_id
    if token is None:
        fix = "The pad id is not a safe substitute; pass --mask-token-id"
        source.fault("D120", "drafter config has no mask_token_id", needed="the token of the mask slots", fix=fix)
        return 0
    embedding = source.tensors.get("embed_tokens.weight")
    rows = embedding.shape[0] if embedding is not None else source.target.embedding_rows
    if not 0 <= token < rows:
        fix = "Pass --mask-token-id"
        source.fault("D122", f"mask_token_id {token} has no embedding row", needed=f"0..{rows - 1}", fix=fix)
        return 0
    if token in source.target.eos_token_ids:
        source.warnings.append(f"warning[D121] mask_token_id {token} is also an end token of the target")
    if embedding is not None and embedding.dtype.is_float and not own_vector:
        norm = float(np.linalg.norm(embedding.read_row(token).astype(np.float32)))
        if norm < _DEAD_NORM:
            source.warnings.append(f"warning[D121] embedding row {token} (mask) has norm {norm:.1e}")
    return token
