# SPDX-License-Identifier: Apache-2.0
"""The one table of drafter fault codes: what each stands for. Codes are stable: none is ever given a new meaning."""

from __future__ import annotations

from typing import Final

CODES: Final[dict[str, str]] = {
    # format
    "D001": "the format that was asked for, or stated, contradicts the tensors",
    "D002": "keys of the configuration that no adapter knows",
    # fused target states
    "D100": "the checkpoint does not say which target layers are fused",
    "D101": "a layer id is out of range for the target",
    "D102": "the width of fc.weight does not fit the number of fused states",
    "D103": "a layer is fused twice",
    "D104": "the layers that attention sub-layers read contradict each other",
    # vocabulary
    "D110": "a reduced vocabulary without a map to target ids",
    "D111": "the drafter's tokenizer differs from the target's",
    "D112": "d2t or t2d is not a map from draft ids to target ids",
    "D113": "the vocabulary differs from the target's",
    "D114": "the drafter was made for another target",
    "D115": "the rotary embedding differs from the target's, whose keys the drafter reads",
    "D116": "the drafter's own embedding is missing",
    # block
    "D120": "the checkpoint does not say which token fills the mask slots",
    "D121": "the mask token is suspicious: a dead embedding row, or an end token",
    "D122": "the mask token has no embedding row, or is given twice",
    "D123": "the mask vector lies in a file that is not read, or not only there",
    "D124": "the block size is missing or given twice",
    "D125": "the slot layout is not stated, or contradicts the number of drafts",
    "D126": "more drafts than the drafter was trained for",
    "D127": "nothing says how many tokens to draft a step",
    "D128": "a pickle, which is never loaded",
    # layers
    "D130": "the mamba state is kept in another type than float32",
    "D131": "windows or causality of the draft layers are not clear",
    "D132": "an option of the draft layers that is not supported",
    "D133": "the Markov or confidence head is not clear",
    "D134": "the norms of an EAGLE drafter are not clear",
    "D140": "the drafter was trained for fewer positions than the target",
    "D150": "a quantised drafter",
}
