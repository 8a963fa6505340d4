# SPDX-License-Identifier: Apache-2.0
"""The drafter formats: which one a checkpoint is, and who reads it. A new drafter is a module and a row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hspec_trt.checkpoint.formats import dflash, dspark, eagle3, hspec, peagle
from hspec_trt.checkpoint.formats.layout import DrafterLayout, DrafterSource
from hspec_trt.errors import DrafterError

Reader = Callable[[DrafterSource], DrafterLayout]
MODEL_TYPE: Final = "speculators_model_type"


@dataclass(frozen=True)
class DrafterFormat:
    """One drafter.

    Attributes:
        kind: our name of it, also what ``--drafter-format`` takes.
        model_type: ``speculators_model_type`` of the published layout; ``architectures`` says nothing there.
        published: reads that layout.
        original: reads the layout of the drafter's authors; None where there is no other.
        keys, tensors: a key of config.json or a prefix of tensor names that gives the original layout away.
    """

    kind: str
    model_type: str
    published: Reader
    original: Reader | None = None
    keys: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()


FORMATS: Final = (
    DrafterFormat(hspec.KIND, hspec.MODEL_TYPE, hspec.read_speculators),
    DrafterFormat(
        "dspark", "dspark", dspark.read_speculators, dspark.read_original, ("dspark_config",), ("markov_head.",)
    ),
    DrafterFormat("dflash", "dflash", dflash.read_speculators, dflash.read_original, ("dflash_config",)),
    DrafterFormat("peagle", "peagle", peagle.read_speculators, peagle.read_original, tensors=("mask_hidden",)),
    DrafterFormat("eagle3", "eagle3", eagle3.read_speculators, eagle3.read_original, ("eagle_config",), eagle3.MARKS),
)
KINDS: Final = tuple(row.kind for row in FORMATS)


def find_reader(source: DrafterSource) -> Reader:
    """Who reads a checkpoint: the published layout by its model type, another one by the user or by its marks.

    Raises:
        DrafterError: D001 where user and checkpoint disagree, or nothing tells.
    """
    wanted = source.options.format
    if wanted is not None and wanted not in KINDS:
        raise DrafterError("D001", f"drafter format {wanted!r}", needed=", ".join(KINDS))
    model_type = source.fields.values.get(MODEL_TYPE)
    if model_type is not None:
        return _published(source, model_type if isinstance(model_type, str) else repr(model_type), wanted)
    for row in FORMATS:
        marks = any(source.fields.has(key) for key in row.keys)
        marks = marks or any(name.startswith(prefix) for name in source.tensors for prefix in row.tensors)
        if row.original is not None and (row.kind == wanted or (wanted is None and marks)):
            return row.original
    raise DrafterError(
        "D001",
        f"{source.fields.where} has no {MODEL_TYPE}, and nothing else tells the drafter"
        if wanted is None
        else f"{source.fields.where} has no {MODEL_TYPE}, which {wanted} needs",
        needed=", ".join(KINDS),
        fix="Pass --drafter-format" if wanted is None else "",
    )


def _published(source: DrafterSource, model_type: str, wanted: str | None) -> Reader:
    for row in FORMATS:
        if row.model_type == model_type:
            if wanted not in (None, row.kind):
                found = f"--drafter-format {wanted} given, but {source.fields.where} says {model_type!r}"
                raise DrafterError("D001", found, fix=f"Use {row.kind}")
            return row.published
    known = ", ".join(f"{row.model_type} ({row.kind})" for row in FORMATS)
    found = f"{MODEL_TYPE} {model_type[:80]!r} is not supported"
    raise DrafterError("D001", found, needed=known, where=source.fields.where)
