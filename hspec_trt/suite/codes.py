# SPDX-License-Identifier: Apache-2.0
"""The one table of fault codes of the comparison."""

from __future__ import annotations

from typing import Final

CODES: Final[dict[str, str]] = {
    "R500": "prompts that cannot be read",
    "R501": "results of other settings or engines in the folder",
    "R502": "engines that cannot be compared",
}
