# SPDX-License-Identifier: Apache-2.0
"""A tiny training: the golden Qwen3 target, made-up conversations, options that run in seconds."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from hspec_trt.checkpoint.target import load_target
from hspec_trt.modeling.load import target_model
from hspec_trt.training import run
from hspec_trt.training.evaluate import Acceptance
from hspec_trt.training.options import ShapeOptions, TrainOptions
from hspec_trt.training.run import TrainJob
from hspec_trt.training.trainer import StepResult, Trainer
from hspec_trt.training.types import DRAFTER_TYPES
from tests.support.golden import GOLDEN

TARGET = GOLDEN / "hspec_qwen3" / "target"
SHAPE = ShapeOptions(
    mask_token_id=255,
    kv_layers=(2, 5),
    fused_layers=(1, 3, 5),
    block_pattern=("mamba", "mlp", "mamba", "attention", "mlp", "mamba", "attention", "mlp"),
    intermediate_size=48,
    block_size=5,
    draft_vocab_size=64,
    sliding_window=32,
    mamba_num_heads=4,
    mamba_head_dim=8,
    mamba_n_groups=2,
    markov_rank=4,
)
CACHED_SHAPE = ShapeOptions(
    mask_token_id=255,
    fused_layers=(1, 3, 5),
    num_layers=2,
    intermediate_size=48,
    block_size=5,
    draft_vocab_size=64,
    sliding_window=32,
)
SHAPES = {
    "hspec": SHAPE,
    "dflash": CACHED_SHAPE,
    "dspark": replace(CACHED_SHAPE, markov_rank=4),
    "peagle": CACHED_SHAPE,
}
"""A tiny shape of every drafter type."""
OPTIONS = TrainOptions(
    steps=4,
    chunks_per_step=4,
    anchors_per_chunk=4,
    warmup_steps=2,
    held_out=0.25,
    eval_conversations=2,
    bfloat16=False,
    device="cpu",
)


def write_data(path: Path, *, rows: int = 24, seed: int = 0) -> Path:
    """Conversations over a small part of the vocabulary; every third one ends with the end token."""
    rng = random.Random(seed)
    with path.open("w") as file:
        for number in range(rows):
            prompt = [rng.randrange(256) for _ in range(rng.randrange(2, 9))]
            response = [5 * rng.randrange(40) + 3 for _ in range(rng.randrange(1, 20))]
            line = {"id": f"p{number // 2}", "task": "math", "prompt_ids": prompt, "response_ids": response}
            file.write(json.dumps(line | {"finish": "eos" if number % 3 == 0 else "length"}) + "\n")
    return path


def make_job(
    folder: Path, *, kind: str = "hspec", shape: ShapeOptions | None = None, options: TrainOptions = OPTIONS
) -> TrainJob:
    """A job whose files all lie in `folder`."""
    folder.mkdir(exist_ok=True)
    data = write_data(folder / "data.jsonl")
    return TrainJob(
        load_target(TARGET), kind, shape or SHAPES.get(kind, SHAPE), options, data, folder / "drafter", folder / "work"
    )


@dataclass
class Recorder:
    """A report that remembers; `stop_after` interrupts as Ctrl-C does."""

    stop_after: int = 0
    notes: list[str] = field(default_factory=list)
    steps: list[StepResult] = field(default_factory=list)
    cached_counts: list[int] = field(default_factory=list)
    evaluations: list[Acceptance] = field(default_factory=list)

    def note(self, line: str) -> None:
        self.notes.append(line)

    def cached(self, done: int, total: int) -> None:
        self.cached_counts.append(done)

    def stepped(self, result: StepResult, steps: int) -> None:
        self.steps.append(result)
        if self.stop_after and len(self.steps) == self.stop_after:
            raise KeyboardInterrupt

    def evaluated(self, step: int, acceptance: Acceptance) -> None:
        self.evaluations.append(acceptance)


def make_trainer(folder: Path, kind: str, options: TrainOptions = OPTIONS) -> Trainer:
    """The trainer of such a job, before its first step."""
    job, report = make_job(folder, kind=kind, options=options), Recorder()
    drafter_type, conversations = DRAFTER_TYPES[kind], run.read_text(job.data, options, job.target.config.vocab_size)
    teacher = target_model(job.target)
    cache = run._teacher_cache(job, drafter_type, teacher, conversations, report)
    part = run.split_text(options, conversations)[0]
    model = run._new_model(job, drafter_type, teacher, [conversations[index] for index in part], report)
    return run._trainer(job, drafter_type, model, cache, part)
