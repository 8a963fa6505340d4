# SPDX-License-Identifier: Apache-2.0
"""Fits the tensors of a checkpoint to the weights that a model needs, and reports all that does not fit at once.

Owns the matching and its messages. It does not know which weights a family has (`hspec_trt.checkpoint.families`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from hspec_trt.checkpoint.name_lists import listed, nearest
from hspec_trt.checkpoint.tensors import TensorSource
from hspec_trt.errors import CheckpointError, Faults

_NEAREST: Final = 3
_Source = TypeVar("_Source", bound=TensorSource)


def match_weights(
    wanted: Mapping[str, tuple[int, ...]],
    found: Mapping[str, _Source],
    *,
    ignored: Sequence[re.Pattern[str]] = (),
    where: str,
    hint: str = "",
) -> dict[str, _Source]:
    """Take the wanted weights out of what a checkpoint holds.

    Args:
        wanted: shape by canonical name.
        found: the checkpoint's tensors by canonical name.
        ignored: anchored patterns of tensors that may stay unused.
        where: the checkpoint, for messages.
        hint: what to do about weights that are missing, where the caller knows better than the names tell.

    Returns:
        The wanted weights, in the order of `wanted`.

    Raises:
        CheckpointError: C020, C021, C022, C025; several at once as a `FaultGroup`.
    """
    missing = [name for name in wanted if name not in found]
    unused = [name for name in found if name not in wanted and not any(pattern.fullmatch(name) for pattern in ignored)]
    faults = Faults()
    if wanted and len(missing) == len(wanted):
        faults.add(_nothing_matched(missing, unused, where))
    elif missing or unused:
        faults.add(_leftovers(missing, unused, where, hint))
    for name, shape in wanted.items():
        if name in found:
            with faults.collect():
                _check_tensor(found[name], shape, where)
    faults.raise_any()
    return {name: found[name] for name in wanted}


def _check_tensor(source: TensorSource, shape: tuple[int, ...], where: str) -> None:
    if source.shape != shape:
        found, needed = f"{source.name} has shape {list(source.shape)}", f"{list(shape)}"
        raise CheckpointError("C022", found, needed=needed, where=where)
    if not source.dtype.is_float:
        found = f"{source.name} is stored as {source.dtype.name}"
        fix = "Quantised weights are not supported: take the checkpoint in bfloat16, float16 or float32"
        raise CheckpointError("C025", found, needed="a float type", where=where, fix=fix)


def _leftovers(missing: list[str], unused: list[str], where: str, hint: str) -> CheckpointError:
    parts = []
    if missing:
        parts.append(
            f"{len(missing)} {'weights have' if len(missing) > 1 else 'weight has'} no source: {listed(missing)}"
        )
    if unused:
        noun = "tensors" if len(unused) > 1 else "tensor"
        parts.append(f"{len(unused)} checkpoint {noun} unused: {listed(unused)}")
    pairs = [(name, nearest(name, unused)) for name in missing[:_NEAREST]]
    close = "; ".join(f"{name} is like {names[0]}" for name, names in pairs if names)
    return CheckpointError("C020", "; ".join(parts), where=where, fix=close or (hint if missing else ""))


def _nothing_matched(missing: list[str], unused: list[str], where: str) -> CheckpointError:
    close = nearest(missing[0], unused, count=_NEAREST, cutoff=0.0)
    fix = f"Nearest to {missing[0]}: {', '.join(close)}" if close else "The checkpoint holds no tensors"
    found = f"0 of {len(missing)} weights matched"
    return CheckpointError("C021", found, needed=f"names such as {missing[0]}", where=where, fix=fix)
