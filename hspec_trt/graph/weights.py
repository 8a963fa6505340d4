# SPDX-License-Identifier: Apache-2.0
"""Which tensors an engine stores, and how each is made from the checkpoints.

Names are ``target.<canonical name>`` and ``drafter.<name in the speculators format>``. What a drafter shares with its
target is stored once: the embedding table (apart from the mask token's row, where only that differs) and a head of the
full vocabulary. Knows neither files nor the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hspec_trt.checkpoint.tensors import TensorSource
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.dtypes import FLOAT16, FLOAT32, INT32, DType
from hspec_trt.errors import BuildError
from hspec_trt.graph.target import padded_vocab

Array = NDArray[np.generic]

KEPT_FLOAT32 = (".ssm.A_log", ".ssm.D", ".ssm.dt_bias", ".ssm.norm.weight")
"""Used in float32 arithmetic only (state decay, step size, gated norm): stored so in every engine."""
FLOAT32_IN_FLOAT16 = ("drafter.fc.weight",)
"""float16 overflows on the outlier channels of the target's hidden states."""
MASK_ROW = "drafter.mask_row"
"""Row of the mask token in a drafter's table that is the target's but for this row; not a checkpoint's tensor."""
CONFIDENCE_HEAD = "confidence_head."
NOT_SERVED = ("d2t", "t2d", "embed_tokens.weight", "lm_head.weight")
"""Drafter tensors that are not copied as they are: folded into the token ids, or shared."""
CHUNK_ROWS = 4096


@dataclass(frozen=True)
class EngineWeight:
    """A tensor that an engine stores."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    make: Callable[[], Array]

    def produce(self) -> Array:
        """The values, in the engine's type.

        Raises:
            BuildError: B032, a value that the engine's type cannot hold.
        """
        values = self.make()
        if values.dtype == self.dtype.numpy:
            return values
        with np.errstate(over="ignore"):
            converted: Array = values.astype(self.dtype.numpy)
        if self.dtype is FLOAT16 and not np.isfinite(converted.astype(np.float32)).all():
            raise BuildError(
                "B032",
                f"{self.name} has values that float16 cannot hold",
                needed="values of magnitude at most 65504",
                fix="Build with --dtype bfloat16",
            )
        return converted


def engine_weights(
    target_tensors: Mapping[str, TensorSource],
    drafter_tensors: Mapping[str, TensorSource] | None,
    target: TargetConfig,
    drafter: DrafterConfig | None,
    dtype: DType,
    *,
    confidence: bool = False,
) -> list[EngineWeight]:
    """List the weights of an engine.

    Args:
        target_tensors: exactly the weights of the target, by canonical name (no ``lm_head.weight`` where tied).
        drafter_tensors: the drafter's, by their names in the speculators format; with `drafter` None, None.
        dtype: the engine's type.
        confidence: the engine gives the drafter's confidence (`BuildConfig.draft_confidence`).

    Returns:
        Weights in the order of use. Their values are read when produced; only tables that the drafter may share
        with the target are compared now.
    """
    weights = [_as_stored(f"target.{name}", tensor, dtype) for name, tensor in target_tensors.items()]
    weights.append(_token_ids("target.token_ids", *_target_ids(target.vocab_size)))
    if drafter is None or drafter_tensors is None:
        return weights
    shared = _Shared(target_tensors, drafter_tensors, target, drafter, dtype)
    weights += shared.embedding()
    weights += [
        _as_stored(f"drafter.{name}", tensor, dtype)
        for name, tensor in drafter_tensors.items()
        if not name.startswith(NOT_SERVED if confidence else (*NOT_SERVED, CONFIDENCE_HEAD))
    ]
    return weights + shared.head()


def stored_dtype(name: str, dtype: DType) -> DType:
    """Type in which an engine of type `dtype` stores a weight."""
    if name.endswith(KEPT_FLOAT32) or (dtype is FLOAT16 and name in FLOAT32_IN_FLOAT16):
        return FLOAT32
    return dtype


def _as_stored(name: str, tensor: TensorSource, dtype: DType) -> EngineWeight:
    return EngineWeight(name, stored_dtype(name, dtype), tensor.shape, tensor.read)


def _target_ids(vocab_size: int) -> tuple[Callable[[], Array], int]:
    # Columns that only fill up the last vector get a valid id; they are never drawn from sound logits.
    length = padded_vocab(vocab_size)
    return lambda: np.minimum(np.arange(length), vocab_size - 1), length


def _token_ids(name: str, make: Callable[[], Array], length: int) -> EngineWeight:
    return EngineWeight(name, INT32, (length,), make)


@dataclass(frozen=True)
class _Shared:
    """Decides what a drafter takes from its target."""

    target_tensors: Mapping[str, TensorSource]
    drafter_tensors: Mapping[str, TensorSource]
    target: TargetConfig
    drafter: DrafterConfig
    dtype: DType

    def embedding(self) -> list[EngineWeight]:
        """Nothing, the mask token's row, or a table of the drafter's own."""
        own = self.drafter_tensors.get("embed_tokens.weight")
        if own is None:
            return []
        differing = list(self._differing_rows(own, self.target_tensors["model.embed_tokens.weight"]))
        mask = self.drafter.mask_token_id
        if not differing:
            return []
        if differing == [mask]:
            shape = own.shape[1:]
            return [EngineWeight(MASK_ROW, self.dtype, shape, lambda: own.read_row(mask))]
        return [_as_stored("drafter.embed_tokens.weight", own, self.dtype)]

    def head(self) -> list[EngineWeight]:
        """Target ids of the head's rows, and the head where it is not the target's own."""
        own = self.drafter_tensors.get("lm_head.weight")
        weights = []
        if self.drafter.reduced_vocab:
            weights.append(_token_ids("drafter.token_ids", self._target_ids, self.drafter.draft_vocab_size))
        if own is None and self.drafter.reduced_vocab:
            shape = (self.drafter.draft_vocab_size, self.drafter.hidden_size)
            rows = EngineWeight("drafter.lm_head.weight", self.dtype, shape, self._rows_of_target)
            weights.append(rows)
        elif own is not None and not self._is_target_head(own):
            weights.append(_as_stored("drafter.lm_head.weight", own, self.dtype))
        return weights

    def _target_ids(self) -> Array:
        """``target_id = draft_id + d2t[draft_id]``."""
        offsets = self.drafter_tensors["d2t"].read().astype(np.int64)
        return np.arange(len(offsets)) + offsets

    def _target_head(self) -> TensorSource:
        return self.target_tensors.get("lm_head.weight", self.target_tensors["model.embed_tokens.weight"])

    def _rows_of_target(self) -> Array:
        return self._target_head().read()[self._target_ids().astype(np.int64)]

    def _is_target_head(self, own: TensorSource) -> bool:
        whole = own.shape[0] == self.target.vocab_size and not self.drafter.reduced_vocab
        return whole and next(self._differing_rows(own, self._target_head()), None) is None

    def _differing_rows(self, own: TensorSource, other: TensorSource) -> Iterator[int]:
        """Rows of `own` that differ from the same rows of `other` once both are in the engine's type."""
        ours, theirs = own.read(), other.read()
        for start in range(0, len(ours), CHUNK_ROWS):
            chunk = ours[start : start + CHUNK_ROWS].astype(self.dtype.numpy)
            reference = theirs[start : start + len(chunk)].astype(self.dtype.numpy)
            if len(reference) < len(chunk):
                yield from range(start + len(reference), start + len(chunk))
                chunk = chunk[: len(reference)]
            yield from (start + int(row) for row in np.flatnonzero((chunk != reference).any(axis=1)))
