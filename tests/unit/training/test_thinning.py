# SPDX-License-Identifier: Apache-2.0
"""Conditional-drop sampling: which slots a step keeps, and what that changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hspec_trt.modeling.peagle import PEagle
from hspec_trt.training.thinning import thin_chains
from hspec_trt.training.trainer import Trainer
from tests.support.training import OPTIONS, Recorder, make_job, make_trainer

WHOLE = torch.ones(4, 25, 8)


def ragged() -> Tensor:
    """Chains of many lengths, some of none: padding, and texts that end."""
    lengths = torch.arange(100).view(4, 25) % 9
    return (torch.arange(8) < lengths[..., None]).float()


def thinned(mask: Tensor, *, rate: float = 0.7, floor: float = 0.2, seed: int = 0, step: int = 0) -> Tensor:
    return thin_chains(mask, rate=rate, floor=floor, seed=seed, step=step)


def test_counts_per_depth() -> None:
    """Worked out by hand: (100 - d) times 0.7^d, from depth 5 on times 0.2."""
    counts = thinned(WHOLE).sum((0, 1)).int().tolist()
    assert counts == [100, 69, 48, 33, 23, 19, 18, 18]
    assert thinned(WHOLE, floor=0.5).sum((0, 1)).int().tolist() == [100, 69, 49, 48, 48, 47, 47, 46]


def test_a_depth_has_no_more_than_its_candidates() -> None:
    mask = ragged()
    kept = thinned(mask, floor=0.5)
    assert kept[..., 0].equal(mask[..., 0])
    for depth in range(1, 8):
        candidates = int((kept[..., depth - 1] * mask[..., depth]).sum())
        wanted = int((mask[..., 0].sum().item() - depth) * max(0.7**depth, 0.5))
        assert kept[..., depth].sum() == min(candidates, wanted)


@pytest.mark.parametrize("mask", [WHOLE, ragged()])
def test_what_is_kept_was_there_and_has_its_whole_chain(mask: Tensor) -> None:
    kept = thinned(mask)
    assert kept.shape == mask.shape
    assert (kept <= mask).all()
    assert (kept[..., 1:] <= kept[..., :-1]).all()
    assert set(kept.flatten().tolist()) == {0.0, 1.0}


def test_the_draw_depends_on_seed_and_step_only() -> None:
    torch.manual_seed(1)
    first = thinned(WHOLE, seed=3, step=7)
    torch.manual_seed(2)
    assert first.equal(thinned(WHOLE, seed=3, step=7))
    assert not first.equal(thinned(WHOLE, seed=3, step=8))
    assert not first.equal(thinned(WHOLE, seed=4, step=7))


def test_every_chain_gets_its_turn() -> None:
    share = torch.stack([thinned(WHOLE, step=step)[..., 3] for step in range(200)]).mean(0)
    assert share.mean() == pytest.approx(0.33)
    assert share.min() > 0.15
    assert share.max() < 0.55


def test_few_blocks_keep_nothing_deep() -> None:
    assert thinned(torch.ones(1, 2, 4)).sum((0, 1)).tolist() == [2, 0, 0, 0]
    assert thinned(torch.zeros(1, 2, 4)).sum() == 0


def test_a_rate_of_one_keeps_all() -> None:
    assert thinned(ragged(), rate=1.0).equal(ragged())


def gradients(trainer: Trainer) -> dict[str, Tensor]:
    """Gradients of the next step, before they are cut."""
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[Tensor], None]:
        return lambda grad: found.update({name: grad.clone()})

    for name, parameter in trainer.model.named_parameters():
        if parameter.requires_grad:
            parameter.register_hook(keep(name))  # type: ignore[no-untyped-call]
    trainer.train_step()
    return found


def test_a_rate_of_one_trains_as_none_does(tmp_path: Path) -> None:
    plain = gradients(make_trainer(tmp_path / "a", "peagle", OPTIONS))
    whole = gradients(make_trainer(tmp_path / "b", "peagle", replace(OPTIONS, cod_rate=1.0)))
    thin = gradients(make_trainer(tmp_path / "c", "peagle", replace(OPTIONS, cod_rate=0.5)))
    assert all(whole[name].equal(grad) for name, grad in plain.items())
    assert not all(thin[name].allclose(grad) for name, grad in plain.items())


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_leaving_out_the_work_changes_no_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    """Slots that are dropped are not run; running them all and judging the kept ones gives the same."""
    options = replace(OPTIONS, cod_rate=rate)
    spared = gradients(make_trainer(tmp_path / "a", "peagle", options))
    hidden, slots = PEagle.hidden, []

    def all_slots(self, inputs, **how):  # type: ignore[no-untyped-def]
        slots.append((inputs.kept.sum().item(), inputs.kept.numel()))
        return hidden(self, replace(inputs, kept=None), **how)

    monkeypatch.setattr(PEagle, "hidden", all_slots)
    whole = gradients(make_trainer(tmp_path / "b", "peagle", options))
    assert slots[0][0] < slots[0][1]
    assert spared.keys() == whole.keys()
    for name, grad in whole.items():
        torch.testing.assert_close(spared[name], grad, atol=1e-6, rtol=1e-4)


def test_a_resumed_run_thins_out_alike(tmp_path: Path) -> None:
    from hspec_trt.training.run import train

    options = replace(OPTIONS, steps=5, cod_rate=0.6, short_slots=2, noise=0.01)
    whole, parts = (make_job(tmp_path / name, kind="peagle", options=options) for name in ("whole", "parts"))
    train(whole, Recorder())
    assert not train(parts, Recorder(stop_after=2)).finished
    assert train(parts, Recorder()).finished
    for name in ("config.json", "model.safetensors"):
        assert (parts.output / name).read_bytes() == (whole.output / name).read_bytes()
