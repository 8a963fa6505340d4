# SPDX-License-Identifier: Apache-2.0
"""Teacher cache: the target's states of every conversation in memory-mapped files that fill up and can be resumed.

Owns the files (two bfloat16 arrays, a manifest, a progress mark); knows neither how states are computed nor how they
are used. Of each conversation it keeps

* keys and values of the wanted layers for all tokens, ``kv.bin`` ``[tokens, layers, 2, kv_heads, head_dim]``;
* the wanted ``h^(L)`` and the final normed state of the tokens from the last one of the prompt on (nothing else can be
  a seed or a label), or of all tokens where the drafter asks for it, ``rows.bin`` ``[rows, states + 1, hidden]``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hspec_trt.bundle import refusals_told, write_atomic
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.errors import DrafterError
from hspec_trt.training.data import Conversation

CACHE_VERSION = 1


@dataclass(frozen=True)
class CacheKey:
    """What a cache was made from and what it holds; two runs share a cache only when all of it is equal.

    Attributes:
        target: fingerprint of the target's weights and configuration.
        data: fingerprint of the conversations in their order.
        hidden_layers, kv_layers: L of the states ``h^(L)`` and layer numbers of K and V.
        all_rows: states of every token, for drafters that make their own K and V of them.
    """

    target: str
    data: str
    hidden_layers: tuple[int, ...]
    kv_layers: tuple[int, ...]
    hidden_size: int
    num_kv_heads: int
    head_dim: int
    compute_dtype: str
    all_rows: bool = False
    version: int = CACHE_VERSION

    def to_json(self) -> str:
        """Sorted JSON, the manifest."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)


@dataclass(frozen=True)
class CachedStates:
    """States of one conversation of ``T`` tokens, ``P`` of them prompt; bfloat16.

    Attributes:
        kv: ``[T, layers, 2, kv_heads, head_dim]``.
        rows: ``[T - first_row, states + 1, hidden]``; the last state is the head's input.
        first_row: token of the first row: P - 1, or 0 where all rows are kept.
    """

    kv: Tensor
    rows: Tensor
    first_row: int


class TeacherCache:
    """States of a list of conversations; the first `num_done` are there."""

    def __init__(self, folder: Path, key: CacheKey, conversations: Sequence[Conversation]) -> None:
        """Open the folder's cache, or start one.

        Raises:
            DrafterError: D201 where the folder holds the cache of something else, or what cannot be read.
            BuildError: B004 the disk has no room for all of it; B005 the system refuses the folder.
        """
        self.folder, self.key = folder, key
        self.conversations = list(conversations)
        self._tokens = [0, *accumulate(len(c.token_ids) for c in conversations)]
        self._rows = [0, *accumulate(len(c.token_ids) - self.first_row(c) for c in conversations)]
        kv_shape = (self._tokens[-1], len(key.kv_layers), 2, key.num_kv_heads, key.head_dim)
        with refusals_told(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._claim()
            self._kv = self._map("kv.bin", kv_shape)
            self._states = self._map("rows.bin", (self._rows[-1], len(key.hidden_layers) + 1, key.hidden_size))

    @property
    def num_done(self) -> int:
        """Conversations whose states are written."""
        mark = self.folder / "done"
        return int(mark.read_text()) if mark.exists() else 0

    @property
    def complete(self) -> bool:
        """True when every conversation is there."""
        return self.num_done == len(self.conversations)

    def check_holds(self, config: DrafterConfig) -> None:
        """Refuse a drafter that reads layers which are not kept.

        Raises:
            DrafterError: D201.
        """
        for kind, wanted, kept, flag in (
            ("h^(L)", config.fused_layers, self.key.hidden_layers, "--cache-hidden-layers"),
            ("K/V of layer", config.read_kv_layers, self.key.kv_layers, "--cache-kv-layers"),
        ):
            missing = sorted(set(wanted) - set(kept))
            if missing:
                needed = ",".join(map(str, sorted({*wanted, *kept})))
                found = f"the drafter reads {kind} {missing[0]}, which the cache is not to keep"
                raise DrafterError("D201", found, needed=needed, where=flag)

    def read(self, index: int) -> CachedStates:
        """States of one conversation, mapped (no copy); `index` is below `num_done`."""
        kv = self._kv[self._tokens[index] : self._tokens[index + 1]]
        rows = self._states[self._rows[index] : self._rows[index + 1]]
        return CachedStates(_bfloat16(kv), _bfloat16(rows), self.first_row(self.conversations[index]))

    def first_row(self, conversation: Conversation) -> int:
        """First token whose states are kept."""
        return 0 if self.key.all_rows else len(conversation.prompt_ids) - 1

    def write(self, index: int, states: CachedStates) -> None:
        """Put the states of one conversation; they count once `commit` says so."""
        self._kv[self._tokens[index] : self._tokens[index + 1]] = states.kv.view(torch.int16).numpy()
        self._states[self._rows[index] : self._rows[index + 1]] = states.rows.view(torch.int16).numpy()

    def commit(self, num_done: int) -> None:
        """Flush, then mark the first `num_done` conversations as written."""
        if self._kv.size:
            self._kv.flush()
        self._states.flush()
        write_atomic(self.folder / "done", str(num_done).encode())

    def _claim(self) -> None:
        manifest, wanted = self.folder / "cache.json", self.key.to_json()
        if not manifest.exists():
            write_atomic(manifest, wanted.encode())
            return
        try:
            found = dict(json.loads(manifest.read_bytes()))
        except (ValueError, TypeError) as error:
            fix = "Give another --cache or delete this one"
            raise DrafterError("D201", "the teacher cache cannot be read", where=str(manifest), fix=fix) from error
        differing = sorted(name for name, value in json.loads(wanted).items() if found.get(name) != value)
        if differing:
            raise DrafterError(
                "D201",
                f"the teacher cache was made for another {', '.join(differing)}",
                where=str(manifest),
                fix="Give another --cache or delete this one",
            )

    def _map(self, name: str, shape: tuple[int, ...]) -> np.memmap[tuple[int, ...], np.dtype[np.int16]]:
        """The file, with all its room on the disk; nothing of the cache counts as done where it was not there whole."""
        path, size = self.folder / name, 2 * int(np.prod(shape))
        if size == 0:
            return np.empty(shape, np.int16)  # type: ignore[return-value]
        if not path.exists() or path.stat().st_size != size:
            (self.folder / "done").unlink(missing_ok=True)
            with path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(path, np.int16, "r+", shape=shape)


def _bfloat16(array: NDArray[np.int16]) -> Tensor:
    return torch.from_numpy(array).view(torch.bfloat16)
