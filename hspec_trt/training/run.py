# SPDX-License-Identifier: Apache-2.0
"""A training from checkpoint and text to a drafter folder: the main path of ``hspec-trt train``.

Owns the order of the stages, when to save and to evaluate, and the log. The output folder holds the drafter; the work
folder what is needed to go on (teacher cache, state) and the log.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch

from hspec_trt.checkpoint.target import TargetCheckpoint
from hspec_trt.errors import DrafterError
from hspec_trt.modeling.block import BlockDrafter
from hspec_trt.modeling.load import shared_tables, target_model
from hspec_trt.modeling.target import TargetModel
from hspec_trt.training.cache import TeacherCache
from hspec_trt.training.data import Conversation, held_out, read_conversations
from hspec_trt.training.evaluate import Acceptance, evaluate, evaluate_groups
from hspec_trt.training.export import export
from hspec_trt.training.options import ShapeOptions, TrainOptions, recipe_json
from hspec_trt.training.teacher import cache_key, fill_cache
from hspec_trt.training.trainer import StepResult, Trainer
from hspec_trt.training.types import DRAFTER_TYPES, DrafterType
from hspec_trt.training.vocab import choose_vocab, coverage

STATE = "state.pt"
LOG = "log.jsonl"
MAX_BYTES = 20_000_000
"""Size up to which a drafter may be kept in a repository."""


class Report(Protocol):
    """Who is told how a training goes."""

    def note(self, line: str) -> None:
        """A line of information."""

    def cached(self, done: int, total: int) -> None:
        """Conversations that the target has run over."""

    def stepped(self, result: StepResult, steps: int) -> None:
        """An optimizer step is done."""

    def evaluated(self, step: int, acceptance: Acceptance) -> None:
        """Held-out conversations were decoded."""


@dataclass(frozen=True)
class TrainJob:
    """What to train on what, and where to.

    Attributes:
        data: conversations, see `hspec_trt.training.data`.
        output: the drafter's folder.
        work: cache, state and log.
    """

    target: TargetCheckpoint
    kind: str
    shape: ShapeOptions
    options: TrainOptions
    data: Path
    output: Path
    work: Path


@dataclass(frozen=True)
class TrainResult:
    """How a training ended.

    Attributes:
        finished: False where it was interrupted; the state is saved.
        acceptance: on all held-out conversations, by group; empty where it was interrupted.
    """

    finished: bool
    steps: int
    acceptance: dict[str, Acceptance]


def train(job: TrainJob, report: Report, *, clock: Callable[[], float] = time.monotonic) -> TrainResult:
    """Train a drafter, or go on with a training that was interrupted.

    Raises:
        DrafterError: D200 for unusable data, D201 and D220 where the work folder belongs to another run, D222 for an
            unknown drafter type.
    """
    if job.kind not in DRAFTER_TYPES:
        raise DrafterError("D222", f"drafter type {job.kind!r}", needed=", ".join(DRAFTER_TYPES))
    drafter_type = DRAFTER_TYPES[job.kind]
    torch.manual_seed(job.options.seed)
    conversations = _conversations(job)
    teacher = target_model(job.target, dtype=torch.bfloat16 if job.options.bfloat16 else torch.float32)
    cache = _teacher_cache(job, drafter_type, teacher, conversations, report)
    parts = _split(job.options, conversations)
    model = _new_model(job, drafter_type, teacher, [conversations[index] for index in parts[0]], report)
    trainer = _trainer(job, drafter_type, model, cache, parts[0])
    report.note(_size_line(model, len(parts[0]), len(parts[1]), trainer.steps))
    finished = _loop(job, drafter_type, trainer, parts[1], report, clock)
    if not finished:
        return TrainResult(False, trainer.step, {})
    return TrainResult(True, trainer.step, _final(job, trainer, parts[1]))


def _conversations(job: TrainJob) -> list[Conversation]:
    """The text in the order of the cache: shuffled, so that its first part is a fair sample."""
    vocab_size, options = job.target.config.vocab_size, job.options
    conversations = read_conversations(job.data, vocab_size=vocab_size, max_tokens=options.max_tokens)
    random.Random(options.seed).shuffle(conversations)
    return conversations


def _teacher_cache(
    job: TrainJob, drafter_type: DrafterType, teacher: TargetModel, conversations: list[Conversation], report: Report
) -> TeacherCache:
    config = drafter_type.make_config(job.target.config, job.shape)
    key = cache_key(
        teacher,
        conversations,
        hidden_layers=job.options.cache_hidden_layers or config.fused_layers,
        kv_layers=job.options.cache_kv_layers or drafter_type.kv_layers(config),
        all_rows=drafter_type.all_rows or job.options.prompt_anchors,
    )
    cache = TeacherCache(job.work / "cache", key, conversations)
    total = len(conversations)
    report.cached(cache.num_done, total)
    fill_cache(cache, teacher, on_progress=lambda done: report.cached(done, total))
    return cache


def _split(options: TrainOptions, conversations: list[Conversation]) -> tuple[list[int], list[int]]:
    """Indices to train on and to evaluate on."""
    outside = [held_out(item, share=options.held_out, seed=options.seed) for item in conversations]
    train_part = [index for index, out in enumerate(outside) if not out]
    eval_part = [index for index, out in enumerate(outside) if out]
    return train_part, eval_part


def _new_model(
    job: TrainJob, drafter_type: DrafterType, teacher: TargetModel, text: list[Conversation], report: Report
) -> BlockDrafter:
    config = drafter_type.make_config(job.target.config, job.shape)
    target_ids = torch.arange(config.vocab_size)
    if config.reduced_vocab:
        size = config.draft_vocab_size
        target_ids = choose_vocab(text, vocab_size=config.vocab_size, draft_vocab_size=size)
        report.note(
            f"draft vocabulary: {size} of {config.vocab_size} tokens, {coverage(text, target_ids):.1%} of the text"
        )
    return drafter_type.make_model(config, shared_tables(target_ids, job.target), teacher.weights, job.options.seed)


def _trainer(
    job: TrainJob, drafter_type: DrafterType, model: BlockDrafter, cache: TeacherCache, indices: list[int]
) -> Trainer:
    trainer = Trainer(
        model,
        cache,
        indices,
        job.options,
        recipe=recipe_json(job.kind, job.shape, job.options),
        causal=drafter_type.causal(model.drafter_config),
    )
    state = job.work / STATE
    if state.exists():
        trainer.load(state)
    return trainer


def _loop(
    job: TrainJob,
    drafter_type: DrafterType,
    trainer: Trainer,
    eval_part: list[int],
    report: Report,
    clock: Callable[[], float],
) -> bool:
    """Step until the end or an interrupt; True at the end."""
    options, some = job.options, eval_part[: job.options.eval_conversations]
    saved = evaluated = clock()
    try:
        while trainer.step < trainer.steps:
            result = trainer.train_step()
            _log(job.work, asdict(result))
            report.stepped(result, trainer.steps)
            if clock() - saved > 60 * options.save_minutes:
                _save(job, drafter_type, trainer)
                saved = clock()
            if clock() - evaluated > 60 * options.eval_minutes and some:
                acceptance = evaluate(trainer.model, trainer.cache, some)
                _log(job.work, {"step": trainer.step, "acceptance": asdict(acceptance)})
                report.evaluated(trainer.step, acceptance)
                evaluated = clock()
    except KeyboardInterrupt:
        _save(job, drafter_type, trainer)
        return False
    _save(job, drafter_type, trainer)
    return True


def _save(job: TrainJob, drafter_type: DrafterType, trainer: Trainer) -> None:
    trainer.save(job.work / STATE)
    export(job.output, drafter_type, trainer.model, job.target.config)


def _final(job: TrainJob, trainer: Trainer, eval_part: list[int]) -> dict[str, Acceptance]:
    """Acceptance on everything held out, as a whole, by way of sampling and by task."""
    groups: dict[str, list[int]] = {"all": eval_part}
    for index in eval_part:
        conversation = trainer.cache.conversations[index]
        for name in (conversation.sampling, conversation.task):
            if name:
                groups.setdefault(name, []).append(index)
    found = evaluate_groups(trainer.model, trainer.cache, groups) if eval_part else {}
    for name, acceptance in found.items():
        _log(job.work, {"step": trainer.step, "final": name, "acceptance": asdict(acceptance)})
    return found


def _log(work: Path, line: dict[str, object]) -> None:
    with (work / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _size_line(model: BlockDrafter, num_train: int, num_eval: int, steps: int) -> str:
    count = sum(parameter.numel() for parameter in model.parameters())
    return f"{count / 1e6:.2f} M parameters; {num_train} conversations to train on, {num_eval} held out; {steps} steps"
