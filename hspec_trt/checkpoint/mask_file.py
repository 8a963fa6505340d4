# SPDX-License-Identifier: Apache-2.0
"""The vector of the mask slots where a drafter keeps it in a file beside its weights.

Owns that file's name and what it may hold. Which drafters use the vector is in `hspec_trt.checkpoint.formats`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from hspec_trt.checkpoint.files import CheckpointFolder
from hspec_trt.checkpoint.formats.block import MASK_VECTOR
from hspec_trt.checkpoint.safetensors_file import open_safetensors
from hspec_trt.checkpoint.shown import printable
from hspec_trt.checkpoint.tensors import MappedTensor
from hspec_trt.errors import DrafterError, Faults

MASK_FILE: Final = f"{MASK_VECTOR}.safetensors"


def check_mask_files(names: tuple[str, ...], faults: Faults) -> None:
    """Refuse a mask vector in a file that is not read (D123), since it would be missed; `names` are the folder's."""
    if MASK_FILE in names:
        return
    for name in names:
        if name.startswith(MASK_VECTOR):
            fix = (
                f"Save its tensor as {MASK_FILE} for DFlash or DSpark; "
                "other drafters take it from embed_tokens.weight at mask_token_id"
            )
            found = f"the mask vector lies in {printable(name)}, which is never loaded"
            faults.add(DrafterError("D123", found, needed="safetensors", fix=fix))


def open_mask_file(
    folder: CheckpointFolder, tensors: Mapping[str, MappedTensor], *, allow_trailing: bool = False
) -> dict[str, MappedTensor]:
    """The vector of `MASK_FILE` under the name that the formats know; nothing without that file.

    Args:
        tensors: of the weights; where their index names the file, it is among them already.

    Raises:
        DrafterError: D123 where the file holds other than one tensor, or the weights have a mask vector too.
        CheckpointError: as `open_safetensors`.
    """
    if not folder.has(MASK_FILE):
        return {}
    path = folder.resolve(MASK_FILE)
    if any(tensor.path == path for tensor in tensors.values()):
        return {}
    found = list(open_safetensors(path, allow_trailing=allow_trailing).values())
    if len(found) != 1:
        raise DrafterError("D123", f"{MASK_FILE} holds {len(found)} tensors", needed="one, the mask vector")
    double = next((name for name in (MASK_VECTOR, f"{MASK_VECTOR}.weight") if name in tensors), None)
    if double is not None:
        fix = f"Delete {MASK_FILE}, or the tensor"
        raise DrafterError("D123", f"{double} is among the weights and in {MASK_FILE}", needed="one of them", fix=fix)
    return {MASK_VECTOR: replace(found[0], name=MASK_VECTOR)}
