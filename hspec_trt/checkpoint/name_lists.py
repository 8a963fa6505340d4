# SPDX-License-Identifier: Apache-2.0
"""Short but complete lists of tensor names for messages: layers that share a name are shown as ranges.

It knows only that layer numbers are whole numbers between dots.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

_NUMBER: Final = re.compile(r"(?<=\.)\d{1,6}(?=\.)|^\d{1,6}(?=\.)")
_MAX_GROUPS: Final = 32
_MAX_CANDIDATES: Final = 4096


def listed(names: Iterable[str]) -> str:
    """All names, e.g. ``model.layers.{0-2,5}.mlp.up_proj.weight, model.norm.weight``; at most 32 groups of them."""
    groups: dict[str, list[int]] = {}
    for name in names:
        match = _NUMBER.search(name)
        key = name if match is None else f"{name[: match.start()]}\0{name[match.end() :]}"
        groups.setdefault(key, []).append(int(match[0]) if match else 0)
    shown = [key.replace("\0", _ranges(numbers)) for key, numbers in groups.items()]
    more = f" and {len(shown) - _MAX_GROUPS} more" if len(shown) > _MAX_GROUPS else ""
    return ", ".join(shown[:_MAX_GROUPS]) + more


def nearest(name: str, names: Sequence[str], *, count: int = 1, cutoff: float = 0.5) -> list[str]:
    """The names most like `name`, best first; `cutoff` 1 takes equal names only, 0 any."""
    return difflib.get_close_matches(name, names[:_MAX_CANDIDATES], n=count, cutoff=cutoff)


def _ranges(numbers: list[int]) -> str:
    """``7`` for one number, ``{0-2,5}`` for several."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    if len(spans) == 1 and spans[0][0] == spans[0][1]:
        return str(spans[0][0])
    return "{" + ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans) + "}"
