# SPDX-License-Identifier: Apache-2.0
"""Conditional-drop sampling: deep slots are trained at fewer anchors than shallow ones.

Owns the draw, a pure function of seed and step, so that a resumed run makes the same one.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_STREAM = 1
"""Keeps these draws apart from others of the same seed."""


def thin_chains(mask: Tensor, *, rate: float, floor: float, seed: int, step: int) -> Tensor:
    """Thin a mask out by depth: of n blocks, depth d keeps ``int((n - d) * max(rate^d, floor))``, drawn at random.

    Candidates of a depth are the blocks that kept the one before it and have something there, so a slot that is kept
    has all before it. A rate of 1 keeps everything.

    Args:
        mask: float ``[S, A, J]`` as in `hspec_trt.training.batches.Batch`; the last dim is the depth.

    Returns:
        As mask, 1 where kept.
    """
    if rate == 1:
        return mask
    depths = mask.flatten(0, 1).T.numpy() > 0
    rng, kept, blocks = np.random.default_rng([seed, step, _STREAM]), depths.copy(), int(depths[0].sum())
    for depth in range(1, len(depths)):
        candidates = np.flatnonzero(kept[depth - 1] & depths[depth])
        count = max(0, int((blocks - depth) * max(rate**depth, floor)))
        kept[depth] = False
        kept[depth, rng.permutation(candidates)[:count]] = True
    return torch.from_numpy(kept.T.astype(np.float32)).view_as(mask)
