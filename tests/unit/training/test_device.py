# SPDX-License-Identifier: Apache-2.0
"""Where a training runs.

PyTorch's `meta` device stands in for a GPU: it refuses operations on mixed devices as CUDA does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.fx.experimental._config as fx_config

from hspec_trt.checkpoint.target import load_target
from hspec_trt.errors import DrafterError
from hspec_trt.modeling.load import target_model
from hspec_trt.training.device import choose_device, prepare
from hspec_trt.training.run import train
from hspec_trt.training.trainer import Trainer
from tests.support.training import OPTIONS, SHAPES, TARGET, Recorder, make_job, make_trainer

META = torch.device("meta")
ROOM = replace(OPTIONS, noise=0.01, optimizer="muon")


@pytest.fixture
def autocasts(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Lets a step run on `meta`, where values cannot be read and masks count as full; gives the devices of autocast."""
    kinds: set[str] = set()

    def autocast(kind: str, *_given: object, **_more: object) -> nullcontext[None]:
        kinds.add(kind)
        return nullcontext()

    monkeypatch.setattr(torch, "autocast", autocast)
    monkeypatch.setattr(torch, "isfinite", lambda values: True)
    item, tolist = torch.Tensor.item, torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "item", lambda self: 0.0 if self.is_meta else item(self))
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: [0.0] * len(self) if self.is_meta else tolist(self))
    with fx_config.patch(meta_nonzero_assume_all_nonzero=True):  # type: ignore[attr-defined]
        yield kinds


def on_meta(folder: Path, kind: str) -> Trainer:
    options = replace(ROOM, cod_rate=0.7 if kind == "peagle" else None)
    here = make_trainer(folder, kind, options)
    return Trainer(here.model.to(META), here.cache, here.indices, options, recipe="")


@pytest.mark.parametrize("kind", SHAPES)
def test_a_step_mixes_no_cpu_tensor_in(tmp_path: Path, kind: str, autocasts: set[str]) -> None:
    trainer = on_meta(tmp_path, kind)
    result = trainer.train_step()
    assert result.step == 1
    assert trainer.head.device == META
    assert autocasts == {"meta"}
    for optimizer in trainer.optimizers:
        states = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
        assert {value.device for value in states} == {META}


@pytest.mark.parametrize("kind", SHAPES)
def test_drafting_mixes_no_cpu_tensor_in(tmp_path: Path, kind: str, autocasts: set[str]) -> None:
    trainer = on_meta(tmp_path, kind)
    batch = trainer._next_batch()
    assert {part.device for name, part in vars(batch).items() if name != "inputs"} == {META}
    drafts = trainer.model.draft(batch.inputs)
    assert {drafts.target_ids.device, drafts.logits.device} == {META}


def test_the_target_runs_where_its_weights_are() -> None:
    target = target_model(load_target(TARGET), device=META)
    states = target.prefill([torch.tensor([1, 2, 3]), torch.tensor([4])], hidden_layers=(1, 6), kv_layers=(2,))
    found = (*states.hidden.values(), *states.keys.values(), *states.values.values(), states.final)
    assert {part.device for part in found} == {META}
    assert states.final.shape == (4, 64)


def test_auto_takes_cuda_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, chosen in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr("torch.cuda.is_available", lambda there=there: there)
        assert choose_device("auto").type == chosen
        assert choose_device("cpu").type == "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert choose_device("cuda").type == "cuda"


def test_cuda_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DrafterError, match="--device cuda") as caught:
        choose_device("cuda")
    assert caught.value.code == "D226"


def test_cuda_is_asked_for_repeatable_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    prepare(torch.device("cpu"))
    assert not torch.are_deterministic_algorithms_enabled()
    try:
        prepare(torch.device("cuda"))
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_run_goes_on_under_another_device_option(tmp_path: Path) -> None:
    whole = make_job(tmp_path / "whole", options=replace(OPTIONS, device="cpu"))
    parts = make_job(tmp_path / "parts", options=replace(OPTIONS, device="cpu"))
    train(whole, Recorder())
    train(parts, Recorder(stop_after=2))
    report = Recorder()
    assert train(replace(parts, options=replace(OPTIONS, device="auto")), report).finished
    assert [step.step for step in report.steps] == [3, 4]
    assert sum(note.startswith("device: ") for note in report.notes) == 1
    if not torch.cuda.is_available():
        assert "device: cpu; mamba scan: our own in PyTorch" in report.notes
        name = "model.safetensors"
        assert (parts.output / name).read_bytes() == (whole.output / name).read_bytes()
