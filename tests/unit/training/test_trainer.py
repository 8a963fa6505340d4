# SPDX-License-Identifier: Apache-2.0
"""Whole trainings of a tiny drafter: output, resuming, refusals, ablations."""

from __future__ import annotations

import itertools
import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.errors import BuildError, DrafterError
from hspec_trt.modeling.load import drafter_model
from hspec_trt.training.evaluate import evaluate
from hspec_trt.training.options import LossMix, ShapeOptions, TrainOptions
from hspec_trt.training.plot import plot_log, read_log
from hspec_trt.training.run import LOG, STATE, TrainJob, train
from hspec_trt.training.trainer import Trainer
from tests.support.training import OPTIONS, SHAPE, SHAPES, Recorder, make_job, write_data

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


@pytest.mark.parametrize("kind", SHAPES)
def test_the_stored_drafter_is_the_trained_one(tmp_path: Path, kind: str) -> None:
    """What was evaluated in training is what the folder gives, up to bfloat16."""
    from hspec_trt.modeling.load import target_model
    from hspec_trt.training.run import _teacher_cache, read_text, split_text
    from hspec_trt.training.types import DRAFTER_TYPES

    job = make_job(tmp_path, kind=kind)
    result = train(job, Recorder())
    conversations = read_text(job.data, job.options, job.target.config.vocab_size)
    teacher = target_model(job.target)
    cache = _teacher_cache(job, DRAFTER_TYPES[kind], teacher, conversations, Recorder())
    model = drafter_model(load_drafter(job.output, job.target), job.target)
    again = evaluate(model, cache, split_text(job.options, conversations)[1])
    assert again.mean_length == pytest.approx(result.acceptance["all"].mean_length, abs=0.02)


@pytest.mark.parametrize("kind", SHAPES)
def test_learns(tmp_path: Path, kind: str) -> None:
    options = replace(OPTIONS, steps=40, lr=3e-3, seed=1)
    report = Recorder()
    train(make_job(tmp_path, kind=kind, options=options), report)
    first = sum(step.loss for step in report.steps[:5])
    last = sum(step.loss for step in report.steps[-5:])
    assert last < 0.8 * first


@pytest.mark.parametrize(
    ("kind", "optimizer", "stop_after"),
    [
        ("hspec", "muon", 1),
        ("hspec", "adamw", 5),
        ("dflash", "adamw", 3),
        ("dspark", "muon", 3),
        ("peagle", "muon", 3),
    ],
)
def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(
    tmp_path: Path, kind: str, optimizer: str, stop_after: int
) -> None:
    options = replace(OPTIONS, steps=7, optimizer=optimizer, short_slots=2, noise=0.01, prompt_anchors=True)
    whole = make_job(tmp_path / "whole", kind=kind, options=options)
    train(whole, Recorder())
    parts = make_job(tmp_path / "parts", kind=kind, options=options)
    stopped = train(parts, Recorder(stop_after=stop_after))
    assert not stopped.finished
    assert stopped.steps == stop_after
    report = Recorder()
    assert train(parts, report).finished
    assert [step.step for step in report.steps] == list(range(stop_after + 1, 8))
    assert _files(parts) == _files(whole)


def test_an_interrupt_in_the_middle_of_a_step_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the parameters have moved by then; saved so, the run would move them twice."""
    whole, parts = make_job(tmp_path / "whole"), make_job(tmp_path / "parts")
    train(whole, Recorder())
    move, calls = torch.optim.AdamW.step, itertools.count(1)

    def interrupted(optimizer: torch.optim.AdamW) -> None:
        move(optimizer)
        if next(calls) == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", interrupted)
        stopped = train(parts, Recorder())
    assert (stopped.finished, stopped.steps) == (False, 2)
    assert [json.loads(line)["step"] for line in (parts.work / LOG).read_text().splitlines()] == [1, 2]
    assert train(parts, Recorder()).finished
    assert _files(parts) == _files(whole)


def test_a_loss_that_is_no_number_ends_the_run_and_saves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path)
    train(job, Recorder(stop_after=2))
    before = (job.work / STATE).read_bytes(), _files(job)
    monkeypatch.setattr(Trainer, "_loss", lambda *_: (torch.tensor(float("nan"), requires_grad=True), None))
    with pytest.raises(DrafterError, match=r"D225.*step 3 is nan"):
        train(job, Recorder())
    assert ((job.work / STATE).read_bytes(), _files(job)) == before


@pytest.mark.parametrize("content", [b"", b"nothing", b"PK\x03\x04", "half", {"step": 2}, [1]])
def test_a_state_that_cannot_be_read_is_refused(tmp_path: Path, content: object) -> None:
    job = make_job(tmp_path)
    train(job, Recorder(stop_after=2))
    state, drafter = job.work / STATE, _files(job)
    if isinstance(content, bytes | str):
        whole = state.read_bytes()
        state.write_bytes(content if isinstance(content, bytes) else whole[: len(whole) // 2])
    else:
        torch.save(content, state)
    with pytest.raises(DrafterError, match=r"D220.*Delete this file"):
        train(job, Recorder())
    assert _files(job) == drafter


def test_an_output_that_this_run_did_not_write_stays(tmp_path: Path) -> None:
    """A drafter of a run whose state is not given, and anything else, the target's own folder above all."""
    job = make_job(tmp_path)
    train(job, Recorder())
    files = _files(job)
    letters = tmp_path / "letters"
    letters.mkdir()
    (letters / "config.json").write_text("{}")
    (tmp_path / "file").touch()
    for changes, code in (
        ({"work": tmp_path / "other"}, "B001"),
        ({"work": tmp_path / "other", "output": letters}, "B001"),
        ({"output": letters}, "B002"),
        ({"output": tmp_path / "file"}, "B002"),
        ({"output": tmp_path / "none" / "drafter"}, "B003"),
        ({"output": tmp_path / "new", "work": tmp_path / "file"}, "B005"),
        ({"output": tmp_path / "new", "cache": tmp_path / "file"}, "B005"),
    ):
        with pytest.raises(BuildError, match=code):
            train(replace(job, **changes), Recorder())
    assert _files(job) == files
    assert (letters / "config.json").read_text() == "{}"
    assert not (tmp_path / "new").exists()


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
    with pytest.raises(DrafterError, match=r"D220.*another lr \("):
        train(other, Recorder())
    with pytest.raises(DrafterError, match=r"D220.*another ce, markov_rank \("):
        mix = replace(OPTIONS.mix, ce=0.3)
        train(replace(job, shape=replace(SHAPE, markov_rank=2), options=replace(OPTIONS, mix=mix)), Recorder())
    with pytest.raises(DrafterError, match=r"D220.*another data \("):
        train(replace(job, data=write_data(tmp_path / "other", seed=1), cache=tmp_path / "cache"), Recorder())
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


def test_drafters_share_a_cache_of_some_conversations(tmp_path: Path) -> None:
    """The target runs once, whatever the drafter and the seed; another choice of text is refused."""
    keep = {"cache_hidden_layers": (1, 3, 5), "cache_kv_layers": (2, 5), "cache_all_rows": True}
    options = replace(OPTIONS, steps=1, max_conversations=14, **keep)  # type: ignore[arg-type]
    runs = {}
    for seed, kind in enumerate(SHAPES):
        job = make_job(tmp_path / kind, kind=kind, options=replace(options, seed=seed))
        runs[kind] = Recorder()
        assert train(replace(job, cache=tmp_path / "cache"), runs[kind]).finished
        assert not (job.work / "cache").exists()
    assert runs["hspec"].cached_counts[0] == 0
    assert [runs[kind].cached_counts for kind in ("dflash", "dspark", "peagle")] == [[14]] * 3
    other = replace(make_job(tmp_path / "other", options=replace(options, data_seed=1)), cache=tmp_path / "cache")
    with pytest.raises(DrafterError, match="another data"):
        train(other, Recorder())


def test_peagle_owns_its_embedding_and_trains_it_when_asked(tmp_path: Path) -> None:
    rows = {}
    for trained in (False, True):
        shape = replace(SHAPES["peagle"], train_embedding=trained)
        job = make_job(tmp_path / str(trained), kind="peagle", shape=shape, options=replace(OPTIONS, lr=1e-2))
        train(job, Recorder())
        drafter = load_drafter(job.output, job.target)
        rows[trained] = drafter.tensors["embed_tokens.weight"].read().astype("float32")
    table = job.target.tensors["model.embed_tokens.weight"].read().astype("float32")
    rounding = abs(table) / 128
    assert (abs(rows[False] - table) <= rounding).all()
    assert (abs(rows[True] - table) > 2 * rounding).any()


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


VARIANTS: list[tuple[str, Changes]] = [
    *(("hspec", changes) for changes in ABLATIONS.values()),
    ("dflash", {"sliding_window": 0, "sample_from_anchor": True, "draft_vocab_size": None}),
    ("dspark", {"markov_type": "gated", "sample_from_anchor": True}),
    ("dspark", {"markov_type": "rnn"}),
    ("dspark", {"markov_rank": 0, "confidence_head": False}),
    ("peagle", {"fc_norm": True, "train_embedding": True}),
]


@pytest.mark.parametrize(("kind", "changes"), VARIANTS)
def test_variants_train_and_load(tmp_path: Path, kind: str, changes: Changes) -> None:
    shape = replace(SHAPES[kind], **changes)  # type: ignore[arg-type]
    job = make_job(tmp_path, kind=kind, shape=shape, options=replace(OPTIONS, steps=2))
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
        ("D100", "dflash", replace(SHAPES["dflash"], fused_layers=()), OPTIONS),
        ("D101", "peagle", replace(SHAPES["peagle"], fused_layers=(1, 6)), OPTIONS),
        ("D221", "dspark", replace(SHAPES["dspark"], sliding_window=0), replace(OPTIONS, short_slots=2)),
        ("D223", "dflash", replace(SHAPES["dflash"], markov_rank=4), OPTIONS),
        ("D223", "dspark", SHAPES["dspark"], replace(OPTIONS, cod_rate=0.7)),
        ("D223", "peagle", SHAPES["peagle"], replace(OPTIONS, cod_floor=0.3)),
        ("D223", "hspec", replace(SHAPE, num_layers=2), OPTIONS),
        ("D201", "dflash", SHAPES["dflash"], replace(OPTIONS, cache_hidden_layers=(1, 3))),
        ("D201", "hspec", SHAPE, replace(OPTIONS, cache_kv_layers=(2,))),
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
    assert code in ("D200", "D201") or not job.work.exists(), "refused before the target ran over the text"


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
