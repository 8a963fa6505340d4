# SPDX-License-Identifier: Apache-2.0
"""What ``train`` writes is what ``build`` reads: a trained folder becomes an engine that drafts as the module does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.config.build import BuildConfig
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.modeling.block import BlockInputs
from hspec_trt.modeling.load import drafter_model, target_model
from hspec_trt.pipeline import build
from hspec_trt.runtime.engine import load_engine
from hspec_trt.runtime.losslessness import verify
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.runtime.request import Update
from hspec_trt.training.run import TrainJob, train
from tests.support.training import OPTIONS, SHAPES, TARGET, Recorder, make_job

PROMPT = [7, 99, 3, 41, 200, 12, 5, 77, 130]


def first_drafts(job: TrainJob, anchor: int) -> list[int]:
    """What the trained module drafts after the prompt and its first token."""
    model = drafter_model(load_drafter(job.output, job.target), job.target)
    config = model.drafter_config
    states = target_model(job.target).prefill(
        [torch.tensor(PROMPT)], hidden_layers=config.fused_layers, kv_layers=config.read_kv_layers
    )
    fused = torch.cat([states.hidden[layer] for layer in config.fused_layers], -1)
    inputs = BlockInputs(
        torch.tensor([[anchor]]),
        torch.tensor([[len(PROMPT)]]),
        fused[None, -1:],
        {layer: key[None] for layer, key in states.keys.items()},
        {layer: value[None] for layer, value in states.values.items()},
        fused[None],
        torch.tensor([[*PROMPT[1:], anchor]]),
    )
    return model.draft(inputs).target_ids[0, 0].tolist()


@pytest.mark.parametrize("kind", SHAPES)
def test_a_trained_folder_builds_and_drafts_alike(kind: str, tmp_path: Path) -> None:
    job = make_job(tmp_path, kind=kind, options=replace(OPTIONS, steps=6, lr=3e-3))
    train(job, Recorder())
    build(TARGET, job.output, tmp_path / "engine", BuildConfig(page_size=16, max_batch_size=2, max_num_tokens=64))
    engine = load_engine(tmp_path / "engine", RuntimeOptions(num_threads=1))
    core, drafted = engine.core, []
    step = core.session.step

    def watched(inputs):  # type: ignore[no-untyped-def]
        outputs = step(inputs)
        drafted.append((int(outputs.emitted_ids[0, 0]), outputs.draft_ids.ravel().tolist()))
        return outputs

    core.session.step = watched  # type: ignore[method-assign]
    said: list[Update] = []
    core.add(
        core.make(PROMPT, SamplingParams(max_tokens=20, temperature=0.0, drafts="on", ignore_eos=True), said.append)
    )
    core.step()
    anchor, drafts = drafted[0]
    assert drafts == first_drafts(job, anchor)
    while not core.is_idle:
        core.step()
    checks = list(verify(core, [PROMPT], bound=0.0, max_tokens=12, temperatures=(0.7,)))
    assert [str(check) for check in checks if not check.passed] == []
    assert np.unique([check.num_tokens for check in checks]).tolist() == [12]
