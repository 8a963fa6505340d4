# SPDX-License-Identifier: Apache-2.0
"""The table of drafter kinds: the name in manifests and on the command line, and its configuration class."""

from __future__ import annotations

from hspec_trt.config.drafter import DrafterConfig, HSpecConfig

DRAFTER_KINDS: dict[str, type[DrafterConfig]] = {
    "hspec": HSpecConfig,
}
