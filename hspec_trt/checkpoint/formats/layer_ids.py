# SPDX-License-Identifier: Apache-2.0
"""Target layer ids of a drafter: from each format's convention to the one used inside, ``h^(L)``.

``h^(L)`` is the residual stream after L decoder layers, L = 0 (the embedding) to N (before the final norm). Owns the
conversion, its range checks and the table that a build prints. Ids are never made up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hspec_trt.checkpoint.formats.layout import DrafterSource
from hspec_trt.config.drafter_options import LayerIdBase

_MEANING: Final[dict[LayerIdBase, str]] = {"input": "input of layer", "output": "output of layer"}
_SHIFT: Final[dict[LayerIdBase, int]] = {"input": 0, "output": 1}
_MOST_IDS: Final = 64


@dataclass(frozen=True)
class LayerIdRule:
    """How a format states its layer ids.

    Attributes:
        name: the field, for messages.
        base: the convention of the format.
        lowest: smallest L the format allows.
        below_last: how far below N the largest one lies.
    """

    name: str
    base: LayerIdBase
    lowest: int = 0
    below_last: int = 0


def fused_layers(source: DrafterSource, stated: tuple[int, ...] | None, rule: LayerIdRule) -> tuple[int, ...]:
    """Internal L of each fused state, in the order of concatenation; empty after a fault.

    Args:
        source: gets the faults D100, D101, D103 and the printed table.
        stated: ids as the checkpoint has them; None where it has none.
        rule: the format's convention, which the user's `layer_id_base` replaces.
    """
    given = source.options.layer_ids
    ids = stated if given is None else given
    base = source.options.layer_id_base or rule.base
    name = rule.name if given is None else "--drafter-layer-ids"
    if ids is None:
        count = source.target.num_layers
        usual = f"2,{count // 2},{count - 3}" if count >= 6 else "..."
        fix = f"Pass --drafter-layer-ids with the layers it was trained on (vLLM assumes {usual}, input of layer)"
        source.fault("D100", f"{rule.name} is missing", needed="the target layers that are fused", fix=fix)
        return ()
    if not ids or len(ids) > _MOST_IDS:
        source.fault("D100", f"{name} has {len(ids)} ids", needed=f"1..{_MOST_IDS}", name=name)
        return ()
    if len(set(ids)) < len(ids):
        source.fault("D103", f"{name} {list(ids)} names a layer twice", needed="different layers", name=name)
        return ()
    return _convert(source, ids, base, rule, name)


def _convert(
    source: DrafterSource, ids: tuple[int, ...], base: LayerIdBase, rule: LayerIdRule, name: str
) -> tuple[int, ...]:
    low, high = rule.lowest - _SHIFT[base], source.target.num_layers - rule.below_last - _SHIFT[base]
    wrong = [item for item in ids if not low <= item <= high]
    if wrong:
        other: LayerIdBase = "input" if base == "output" else "output"
        found = f"{name}: {wrong[0]} is out of range for a {source.target.num_layers}-layer target"
        needed = f"{low}..{high} (convention: {_MEANING[base]})"
        fix = f"If the ids name the {_MEANING[other]}, pass --layer-id-base {other}"
        source.fault("D101", found, needed=needed, fix=fix, name=name)
        return ()
    layers = tuple(item + _SHIFT[base] for item in ids)
    source.notes.extend(_table(name, ids, layers, base))
    return layers


def _table(name: str, ids: tuple[int, ...], layers: tuple[int, ...], base: LayerIdBase) -> list[str]:
    lines = [f"fused target states, lowest channels first ({name}, {_MEANING[base]}):"]
    width = max(len(str(item)) for item in ids)
    lines += [
        f"  id {item:>{width}} = {_MEANING[base]} {item} = h^({layer})" for item, layer in zip(ids, layers, strict=True)
    ]
    return lines


def check_fusion_width(source: DrafterSource, layers: tuple[int, ...]) -> None:
    """Compare the number of fused states with the width of ``fc.weight`` (D102)."""
    weight, hidden = source.tensors.get("fc.weight"), source.target.hidden_size
    if weight is None or len(weight.shape) != 2 or not layers or weight.shape[1] == len(layers) * hidden:
        return
    count, rest = divmod(weight.shape[1], hidden)
    states = (
        f"{count} fused states ({weight.shape[1]} = {count} x {hidden})" if not rest else f"width {weight.shape[1]}"
    )
    found = f"fc.weight expects {states}, the layer ids give {len(layers)}: {list(layers)}"
    source.fault("D102", found, needed=f"{len(layers)} x {hidden} = {len(layers) * hidden}", name="fc.weight")
