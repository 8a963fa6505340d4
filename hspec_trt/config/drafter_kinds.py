# SPDX-License-Identifier: Apache-2.0
"""The table of drafter kinds: the name in manifests and on the command line, and its configuration class."""

from __future__ import annotations

from hspec_trt.config.drafter import DrafterConfig, HSpecConfig
from hspec_trt.config.drafters_block import DFlashConfig, DSparkConfig
from hspec_trt.config.drafters_eagle import Eagle3Config, PEagleConfig

DRAFTER_KINDS: dict[str, type[DrafterConfig]] = {
    "hspec": HSpecConfig,
    "dflash": DFlashConfig,
    "dspark": DSparkConfig,
    "peagle": PEagleConfig,
    "eagle3": Eagle3Config,
}
