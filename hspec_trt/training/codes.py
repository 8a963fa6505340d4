# SPDX-License-Identifier: Apache-2.0
"""The one table of fault codes of modules and training; `hspec_trt.checkpoint.formats.codes` has the checkpoint's."""

from __future__ import annotations

from typing import Final

CODES: Final[dict[str, str]] = {
    "D200": "training text that cannot be used",
    "D201": "a teacher cache of another target, text or choice of layers",
    "D210": "a drafter without a PyTorch module",
    "D220": "a saved run with other options",
    "D221": "short blocks of a drafter that is bidirectional inside the block",
    "D222": "a drafter type that cannot be trained",
    "D223": "an option of another drafter type",
    "D224": "a number that no training can work with",
    "D225": "a loss that is no number",
    "D226": "a device to train on that is not there",
}
