# SPDX-License-Identifier: Apache-2.0
"""DSpark in PyTorch: DFlash's backbone with a Markov head of any kind and a confidence head."""

from __future__ import annotations

from hspec_trt.config.drafters_block import DSparkConfig
from hspec_trt.modeling.block import SharedTables
from hspec_trt.modeling.dflash import DFlashModel
from hspec_trt.modeling.markov import ConfidenceHead, MarkovHead


class DSparkModel(DFlashModel):
    """The drafter."""

    def __init__(self, config: DSparkConfig, tables: SharedTables) -> None:
        super().__init__(config, tables)
        if config.markov_rank:
            self.markov_head = MarkovHead(
                config.vocab_size,
                config.draft_vocab_size,
                config.markov_rank,
                kind=config.markov_type,
                hidden_size=config.hidden_size,
            )
        if config.confidence_head:
            self.confidence_head = ConfidenceHead(config.confidence_width)
