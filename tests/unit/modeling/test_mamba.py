# SPDX-License-Identifier: Apache-2.0
"""Scan and mixer against the golden operator vectors."""

from __future__ import annotations

import json

import pytest
import torch

from hspec_trt.modeling.mamba import Mamba2Mixer, block_scan
from tests.support.golden import GOLDEN, vectors

META = json.loads((GOLDEN / "mamba2_ops" / "meta.json").read_text())
TOLERANCE = 2e-4


def _tensors(prefix: str) -> dict[str, torch.Tensor]:
    found = vectors("mamba2_ops").items()
    return {name.removeprefix(prefix): value for name, value in found if name.startswith(prefix)}


@pytest.mark.parametrize("case", META["scan_cases"], ids=lambda case: case["id"])
def test_scan(case: dict[str, object]) -> None:
    given = {
        name.split(".")[1]: value for name, value in vectors("mamba2_ops").items() if name.startswith(f"{case['id']}.")
    }
    y, state = block_scan(
        given["x"],
        given["dt"],
        given["A_log"],
        given["B"],
        given["C"],
        d=given.get("D"),
        state=given.get("initial_state"),
    )
    torch.testing.assert_close(y, given["y"], atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(state, given["final_state"], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("case", META["mixer_cases"], ids=lambda case: case["id"])
def test_mixer(case: dict[str, int]) -> None:
    prefix = f"{case['id']}."
    given = {
        name.removeprefix(prefix): value for name, value in vectors("mamba2_ops").items() if name.startswith(prefix)
    }
    mixer = Mamba2Mixer(
        case["hidden"],
        num_heads=case["heads"],
        head_dim=case["head_dim"],
        d_state=case["d_state"],
        n_groups=case["groups"],
        conv_kernel=case["conv_kernel"],
        norm_eps=1e-5,
    )
    weights = {name.removeprefix("weight."): value for name, value in given.items() if name.startswith("weight.")}
    mixer.load_state_dict(weights)
    with torch.no_grad():
        out = mixer(given["u"], given.get("initial_state"))
    torch.testing.assert_close(out, given["out"], atol=TOLERANCE, rtol=0)


def test_a_block_in_two_halves_is_the_same_block() -> None:
    """The state that the scan hands back is the one that the next tokens need."""
    torch.manual_seed(0)
    x, dt = torch.randn(2, 8, 6, 4), torch.rand(2, 8, 6)
    b, c, a_log = torch.randn(2, 8, 3, 2), torch.randn(2, 8, 3, 2), torch.rand(6)
    whole, final = block_scan(x, dt, a_log, b, c, d=None, state=None)
    first, state = block_scan(x[:, :5], dt[:, :5], a_log, b[:, :5], c[:, :5], d=None, state=None)
    second, last = block_scan(x[:, 5:], dt[:, 5:], a_log, b[:, 5:], c[:, 5:], d=None, state=state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, atol=1e-5, rtol=0)
    torch.testing.assert_close(last, final, atol=1e-5, rtol=0)


def test_large_steps_do_not_overflow() -> None:
    """Above the diagonal the exponent is positive: it must be masked before exp."""
    x = torch.ones(1, 8, 1, 1)
    y, _ = block_scan(x, torch.full((1, 8, 1), 100.0), torch.tensor([2.0]), x, x, d=None, state=torch.ones(1, 1, 1, 1))
    assert torch.isfinite(y).all()
