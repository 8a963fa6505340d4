# SPDX-License-Identifier: Apache-2.0
"""The fused loss against the plain formulas and autograd."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from hspec_trt.training import loss as loss_module
from hspec_trt.training.loss import head_loss, slot_weights
from hspec_trt.training.options import LossMix


@pytest.mark.parametrize("mix", [LossMix(1.0, 0.0), LossMix(0.0, 1.0), LossMix(0.1, 0.9)])
@pytest.mark.parametrize("with_markov", [False, True])
def test_equals_the_formula_and_its_gradient(mix: LossMix, with_markov: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "ROWS_AT_ONCE", 7)
    torch.manual_seed(0)
    hidden, rows, table = (torch.randn(shape, requires_grad=True) for shape in ((23, 16), (23, 4), (50, 4)))
    final, head, weight = torch.randn(23, 16), torch.randn(50, 16), torch.rand(23)
    markov = (rows, table) if with_markov else None
    result = head_loss(hidden, final, head, weight, markov=markov, mix=mix)
    (result.loss * 3).backward()
    found = [part.grad.clone() for part in (hidden, *(markov or ())) if part.grad is not None]
    for part in (hidden, rows, table):
        part.grad = None
    logits = hidden @ head.T + (rows @ table.T if with_markov else 0)
    target = final @ head.T
    overlap = torch.minimum(logits.softmax(-1), target.softmax(-1)).sum(-1)
    ce = functional.cross_entropy(logits, target.argmax(-1), reduction="none")
    wanted = ((mix.ce * ce + mix.tv * (1 - overlap)) * weight).sum()
    (wanted * 3).backward()
    torch.testing.assert_close(result.loss, wanted)
    torch.testing.assert_close(result.overlap, overlap)
    assert result.hit.tolist() == (logits.argmax(-1) == target.argmax(-1)).tolist()
    plain = [part.grad for part in (hidden, *(markov or ()))]
    assert len(found) == len(plain)
    for ours, theirs in zip(found, plain, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_an_equal_distribution_has_no_variation_left() -> None:
    states = torch.randn(5, 16)
    result = head_loss(states, states, torch.randn(50, 16), torch.ones(5), markov=None, mix=LossMix(0.0, 1.0))
    assert result.loss.item() == pytest.approx(0.0, abs=1e-5)
    assert result.hit.all()


def test_slot_weights_fall_by_e_over_four_slots() -> None:
    weights = slot_weights(9)
    assert weights[0] == 1.0
    assert weights[4].item() == pytest.approx(1 / 2.718281828, rel=1e-5)
