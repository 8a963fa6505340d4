# SPDX-License-Identifier: Apache-2.0
"""The tensors of a checkpoint folder, in one safetensors file or in several with an index.

Owns which files are opened and whether index and shards agree. It does not know model names. Every file is opened once.
"""

from __future__ import annotations

from typing import Final

from hspec_trt.checkpoint.files import MEBIBYTE, CheckpointFolder
from hspec_trt.checkpoint.json_text import kind_of, parse_object
from hspec_trt.checkpoint.safetensors_file import open_safetensors
from hspec_trt.checkpoint.shown import printable
from hspec_trt.checkpoint.tensors import MappedTensor
from hspec_trt.errors import CheckpointError, Faults

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
MAX_INDEX_BYTES: Final = 64 * MEBIBYTE
MAX_SHARDS: Final = 4096
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt")


def open_weights(folder: CheckpointFolder, *, allow_trailing: bool = False) -> dict[str, MappedTensor]:
    """Map all tensors of a folder; ``model.safetensors`` is taken before an index, as transformers does.

    Args:
        allow_trailing: accept bytes after the last tensor of a file.

    Returns:
        The tensors by stored name.

    Raises:
        CheckpointError: C001, C003 to C011, C018, C023; several at once as a `FaultGroup`.
    """
    if folder.has(SINGLE):
        return open_safetensors(folder.resolve(SINGLE), allow_trailing=allow_trailing)
    if folder.has(INDEX):
        return _open_shards(folder, read_index(folder), allow_trailing=allow_trailing)
    raise _no_weights(folder)


def read_index(folder: CheckpointFolder) -> dict[str, str]:
    """The shard that holds each tensor, by stored name.

    Raises:
        CheckpointError: C009 or C011 for an index that is damaged.
    """
    index = parse_object(folder.read(INDEX, limit=MAX_INDEX_BYTES), where=INDEX)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        found = (
            f"weight_map of {INDEX} is {kind_of(weight_map)}" if weight_map != {} else f"weight_map of {INDEX} is empty"
        )
        raise CheckpointError("C009", found, needed="an object: tensor name to file")
    shards: dict[str, str] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str):
            raise CheckpointError("C009", f"{name!r} maps to a {kind_of(shard)}", needed="a file name", where=INDEX)
        shards[name] = shard
    if len(set(shards.values())) > MAX_SHARDS:
        raise CheckpointError(
            "C009", f"{INDEX} names {len(set(shards.values()))} files", needed=f"at most {MAX_SHARDS}"
        )
    return shards


def _open_shards(
    folder: CheckpointFolder, shard_of: dict[str, str], *, allow_trailing: bool
) -> dict[str, MappedTensor]:
    first_key = {shard: name for name, shard in reversed(shard_of.items())}
    faults = Faults()
    paths = {}
    # Every path is judged before any file is opened.
    for shard, name in first_key.items():
        with faults.collect():
            paths[shard] = folder.resolve(shard, named_by=f"{INDEX}: {printable(name)}")
    faults.raise_any()
    opened: dict[str, dict[str, MappedTensor]] = {}
    for shard, path in paths.items():
        with faults.collect():
            opened[shard] = open_safetensors(path, allow_trailing=allow_trailing)
    faults.raise_any()
    _check_index(shard_of, opened, faults)
    faults.raise_any()
    return {name: opened[shard][name] for name, shard in shard_of.items()}


def _check_index(shard_of: dict[str, str], opened: dict[str, dict[str, MappedTensor]], faults: Faults) -> None:
    absent = [(name, shard) for name, shard in shard_of.items() if name not in opened[shard]]
    if absent:
        name, shard = absent[0]
        found = f"{len(absent)} of {len(shard_of)} tensors are not in the file that the index names, first {name!r}"
        faults.add(CheckpointError("C009", found, needed=f"a tensor of that name in {shard}", where=INDEX))
    holders: dict[str, list[str]] = {}
    for shard, tensors in opened.items():
        for name in tensors:
            holders.setdefault(name, []).append(shard)
    for name, shards in holders.items():
        if len(shards) > 1:
            faults.add(CheckpointError("C023", f"{name!r} is in {' and in '.join(shards)}", where=INDEX))
    stray = [name for name, shards in holders.items() if name not in shard_of]
    if stray:
        found = f"{len(stray)} tensors of the shards are not in the index, first {stray[0]!r} of {holders[stray[0]][0]}"
        fix = "The index belongs to other shards: get both from one revision"
        faults.add(CheckpointError("C009", found, where=INDEX, fix=fix))


def _no_weights(folder: CheckpointFolder) -> CheckpointError:
    names = folder.names()
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if pickles:
        fix = "Convert it: transformers' save_pretrained(..., safe_serialization=True) writes safetensors"
        return CheckpointError("C018", f"{pickles[0]} is a pickle", needed=SINGLE, where=str(folder.path), fix=fix)
    there = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "") or "nothing"
    return CheckpointError("C010", f"{folder.path} holds no weights ({there})", needed=f"{SINGLE} or {INDEX}")
