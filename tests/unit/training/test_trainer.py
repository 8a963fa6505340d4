# SPDX-License-Identifier: Apache-2.0
"""Whole trainings of a tiny drafter: output, resuming, refusals, ablations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.errors import DrafterError
from hspec_trt.modeling.load import drafter_model
from hspec_trt.training.evaluate import evaluate
from hspec_trt.training.options import LossMix, ShapeOptions, TrainOptions
from hspec_trt.training.plot import plot_log, read_log
from hspec_trt.training.run import LOG, STATE, TrainJob, train
from tests.support.training import OPTIONS, SHAPE, Recorder, make_job

Changes = dict[str, object]


def _files(job: TrainJob) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(job.output.iterdir())}


def test_writes_a_drafter_that_loads_and_drafts(tmp_path: Path) -> None:
    job, report = make_job(tmp_path), Recorder()
    result = train(job, report)
    assert result.finished and result.steps == 4
    assert [step.step for step in report.steps] == [1, 2, 3, 4]
    drafter = load_drafter(job.output, job.target)
    assert isinstance(drafter.config, HSpecConfig)
    assert (drafter.config.attn_kv_layers, drafter.config.fused_layers) == ((2, 5), (1, 3, 5))
    assert (drafter.config.attn_windows, drafter.config.num_drafts) == ((32, 32), 4)
    assert "embed_tokens.weight" not in drafter.tensors
    assert "lm_head.weight" not in drafter.tensors
    dtypes = {name: tensor.dtype.name for name, tensor in drafter.tensors.items()}
    assert dtypes["layers.0.ssm.A_log"] == "float32"
    assert dtypes["fc.weight"] == "bfloat16"
    assert set(result.acceptance) == {"all", "math"}
    assert 1.0 <= result.acceptance["all"].mean_length <= 5.0
    assert sum(result.acceptance["all"].offered) > 0


def test_the_stored_drafter_is_the_trained_one(tmp_path: Path) -> None:
    """What was evaluated in training is what the folder gives, up to bfloat16."""
    from hspec_trt.modeling.load import target_model
    from hspec_trt.training.run import _conversations, _split, _teacher_cache
    from hspec_trt.training.types import DRAFTER_TYPES

    job = make_job(tmp_path)
    result = train(job, Recorder())
    conversations = _conversations(job)
    teacher = target_model(job.target)
    cache = _teacher_cache(job, DRAFTER_TYPES["hspec"], teacher, conversations, Recorder())
    model = drafter_model(load_drafter(job.output, job.target), job.target)
    again = evaluate(model, cache, _split(job.options, conversations)[1])
    assert again.mean_length == pytest.approx(result.acceptance["all"].mean_length, abs=0.02)


def test_learns(tmp_path: Path) -> None:
    options = replace(OPTIONS, steps=40, lr=3e-3, seed=1)
    report = Recorder()
    train(make_job(tmp_path, options=options), report)
    first = sum(step.loss for step in report.steps[:5])
    last = sum(step.loss for step in report.steps[-5:])
    assert last < 0.8 * first


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("stop_after", [1, 5])
def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(
    tmp_path: Path, optimizer: str, stop_after: int
) -> None:
    options = replace(OPTIONS, steps=7, optimizer=optimizer, short_slots=2, noise=0.01, prompt_anchors=True)
    whole = make_job(tmp_path / "whole", options=options)
    train(whole, Recorder())
    parts = make_job(tmp_path / "parts", options=options)
    stopped = train(parts, Recorder(stop_after=stop_after))
    assert not stopped.finished
    assert stopped.steps == stop_after
    report = Recorder()
    assert train(parts, report).finished
    assert [step.step for step in report.steps] == list(range(stop_after + 1, 8))
    assert _files(parts) == _files(whole)


def test_an_interrupt_while_the_target_runs_loses_nothing(tmp_path: Path) -> None:
    class Impatient(Recorder):
        def cached(self, done: int, total: int) -> None:
            super().cached(done, total)
            if done == total:
                raise KeyboardInterrupt

    job = make_job(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(job, Impatient())
    report = Recorder()
    assert train(job, report).finished
    assert report.cached_counts == [24]


def test_other_options_do_not_resume(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    train(job, Recorder(stop_after=2))
    other = replace(job, options=replace(OPTIONS, lr=1.0))
    with pytest.raises(DrafterError) as caught:
        train(other, Recorder())
    assert caught.value.code == "D220"
    longer = replace(job, options=replace(OPTIONS, steps=9))
    with pytest.raises(DrafterError, match="for 4 steps and 2 are done"):
        train(longer, Recorder())


def test_a_late_schedule_may_be_made_longer_before_it_falls(tmp_path: Path) -> None:
    late = replace(OPTIONS, schedule="late", decay=0.4, steps=12)
    whole = make_job(tmp_path / "whole", options=late)
    train(whole, Recorder())
    parts = make_job(tmp_path / "parts", options=replace(late, steps=20, decay=0.7))
    train(parts, Recorder(stop_after=5))
    assert train(replace(parts, options=late), Recorder()).finished
    assert _files(parts) == _files(whole)
    with pytest.raises(DrafterError, match="Give the same --steps and --decay"):
        train(replace(parts, options=replace(late, decay=0.3)), Recorder())


def test_frozen_parts_stay(tmp_path: Path) -> None:
    """Query and key norms are the target's; embeddings and head are not even stored."""
    job = make_job(tmp_path, options=replace(OPTIONS, lr=1e-2))
    train(job, Recorder())
    drafter = load_drafter(job.output, job.target)
    stored = drafter.tensors["layers.3.self_attn.k_norm.weight"].read().astype("float32")
    own = job.target.tensors["model.layers.2.self_attn.k_norm.weight"].read()
    assert abs(stored - own).max() < 0.01
    moved = drafter.tensors["layers.3.self_attn.k_proj.weight"].read().astype("float32")
    assert abs(moved - job.target.tensors["model.layers.2.self_attn.k_proj.weight"].read()).max() > 0.005


ABLATIONS: dict[str, Changes] = {
    "no seed": {"state_injection": False},
    "no K/V": {"target_kv_reuse": False},
    "no Markov": {"markov_rank": 0},
    "seed per layer": {"seed_mode": "per_layer"},
    "seed once": {"seed_mode": "once"},
    "K/V only": {"block_pattern": ("mlp", "attention", "mlp", "attention", "mlp"), "state_injection": False},
    "mamba only": {"block_pattern": ("mamba", "mlp", "mamba", "mlp"), "kv_layers": ()},
    "bidirectional": {"sliding_window": 0},
    "full vocabulary": {"draft_vocab_size": None},
    "fc norm, no confidence": {"fc_norm": True, "confidence_head": False},
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_train_and_load(tmp_path: Path, name: str) -> None:
    shape = replace(SHAPE, **ABLATIONS[name])  # type: ignore[arg-type]
    job = make_job(tmp_path, shape=shape, options=replace(OPTIONS, steps=2))
    result = train(job, Recorder())
    model = drafter_model(load_drafter(job.output, job.target), job.target)
    assert result.finished
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("code", "kind", "shape", "options"),
    [
        ("D222", "eagle9", SHAPE, OPTIONS),
        ("D104", "hspec", replace(SHAPE, kv_layers=(2,)), OPTIONS),
        ("D100", "hspec", replace(SHAPE, fused_layers=()), OPTIONS),
        ("D221", "hspec", replace(SHAPE, sliding_window=0), replace(OPTIONS, short_slots=2)),
        ("D200", "hspec", SHAPE, replace(OPTIONS, chunks_per_step=10_000)),
        ("D101", "hspec", replace(SHAPE, kv_layers=(2, 6)), OPTIONS),
        ("D101", "hspec", replace(SHAPE, fused_layers=(1, 6)), OPTIONS),
        ("D122", "hspec", replace(SHAPE, mask_token_id=256), OPTIONS),
    ],
)
def test_bad_options_are_refused(
    tmp_path: Path, code: str, kind: str, shape: ShapeOptions, options: TrainOptions
) -> None:
    job = make_job(tmp_path, kind=kind, shape=shape, options=options)
    with pytest.raises(DrafterError) as caught:
        train(job, Recorder())
    assert code in {fault.code for fault in caught.value.faults}
    assert not (job.work / STATE).exists()


def test_evaluates_and_draws(tmp_path: Path) -> None:
    job = make_job(tmp_path, options=replace(OPTIONS, eval_minutes=0.0, mix=LossMix(0.5, 0.5)))
    report = Recorder()
    train(job, report)
    assert len(report.evaluations) == 4
    curves = read_log(job.work / LOG)
    assert curves.steps == [1, 2, 3, 4]
    assert curves.evaluated == [1, 2, 3, 4, 4]
    assert all(json.loads(line)["step"] for line in (job.work / LOG).read_text().splitlines())
    plot_log(job.work / LOG, tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
