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

from hspec_trt.bundle import FolderKind, check_output, refusals_told
from hspec_trt.checkpoint.target import TargetCheckpoint
from hspec_trt.errors import BuildError, DrafterError
from hspec_trt.modeling.block import BlockDrafter
from hspec_trt.modeling.load import EMBEDDING, shared_tables, target_model
from hspec_trt.modeling.mamba import Mamba2Mixer, uses_kernels
from hspec_trt.modeling.target import TargetModel
from hspec_trt.training.cache import TeacherCache
from hspec_trt.training.data import Conversation, held_out, read_conversations
from hspec_trt.training.device import choose_device, prepare
from hspec_trt.training.evaluate import Acceptance, evaluate, evaluate_groups
from hspec_trt.training.export import export
from hspec_trt.training.interrupts import held_interrupts
from hspec_trt.training.options import ShapeOptions, TrainOptions, check_options, recipe_json
from hspec_trt.training.start import make_model
from hspec_trt.training.teacher import cache_key, fill_cache
from hspec_trt.training.trainer import StepResult, Trainer, check_fits
from hspec_trt.training.types import DRAFTER_TYPES, DrafterType
from hspec_trt.training.vocab import choose_vocab, coverage

STATE = "state.pt"
LOG = "log.jsonl"
DRAFTER = FolderKind("a drafter folder", "config.json", b'"speculators_model_type"')
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
        work: state and log.
        cache: states of the target; runs on the same data may share it. None is a folder in `work`.
    """

    target: TargetCheckpoint
    kind: str
    shape: ShapeOptions
    options: TrainOptions
    data: Path
    output: Path
    work: Path
    cache: Path | None = None


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
            unknown drafter type, D224 for numbers out of range, D225 where the loss is no number, D226 for a device
            that is not there, else as the configuration of the drafter type.
        BuildError: B001 to B005 where the output cannot be written or is not of this run.
    """
    if job.kind not in DRAFTER_TYPES:
        raise DrafterError("D222", f"drafter type {job.kind!r}", needed=", ".join(DRAFTER_TYPES))
    drafter_type = DRAFTER_TYPES[job.kind]
    check_options(job.shape, job.options)
    drafter_type.config(job.target.config, job.shape)
    device = choose_device(job.options.device)
    _check_output(job)
    prepare(device)
    torch.manual_seed(job.options.seed)
    text = read_text(job.data, job.options, job.target.config.vocab_size)
    conversations = text[: job.options.max_conversations]
    dtype = torch.bfloat16 if job.options.bfloat16 else torch.float32
    teacher = target_model(job.target, dtype=dtype, device=device)
    parts = split_text(job.options, conversations)
    model = _new_model(job, drafter_type, teacher, [text[index] for index in split_text(job.options, text)[0]], report)
    model.to(device)
    check_fits(model, job.options)
    report.note(_device_line(model))
    cache = _teacher_cache(job, drafter_type, teacher, conversations, report)
    trainer = _trainer(job, drafter_type, model, cache, parts[0])
    report.note(_size_line(model, len(parts[0]), len(parts[1]), trainer.steps))
    finished = _loop(job, drafter_type, trainer, parts[1], report, clock)
    if not finished:
        return TrainResult(False, trainer.step, {})
    return TrainResult(True, trainer.step, _final(job, trainer, parts[1]))


def _check_output(job: TrainJob) -> None:
    """Refuse an output that cannot be made, or that no state in the work folder speaks for."""
    with refusals_told(job.output):
        taken = job.output.is_dir() and any(job.output.iterdir()) and not (job.work / STATE).exists()
    if taken:
        fix = "Choose another --output, or give the --work-dir of the run that wrote it"
        raise BuildError("B001", f"{job.output} exists", needed="a new folder", fix=fix)
    check_output(job.output, force=True, kind=DRAFTER)


def read_text(data: Path, options: TrainOptions, vocab_size: int) -> list[Conversation]:
    """All the text, shuffled, so that its first part is a fair sample."""
    conversations = read_conversations(data, vocab_size=vocab_size, max_tokens=options.max_tokens)
    random.Random(options.data_seed).shuffle(conversations)
    return conversations


def _teacher_cache(
    job: TrainJob, drafter_type: DrafterType, teacher: TargetModel, conversations: list[Conversation], report: Report
) -> TeacherCache:
    config, options = drafter_type.config(job.target.config, job.shape), job.options
    key = cache_key(
        teacher,
        conversations,
        hidden_layers=options.cache_hidden_layers or config.fused_layers,
        kv_layers=options.cache_kv_layers or config.read_kv_layers,
        all_rows=options.cache_all_rows or options.prompt_anchors or config.num_cache_layers > 0,
    )
    with refusals_told(job.work):
        job.work.mkdir(parents=True, exist_ok=True)
    cache = TeacherCache(job.cache or job.work / "cache", key, conversations)
    cache.check_holds(config)
    total = len(conversations)
    report.cached(cache.num_done, total)
    fill_cache(cache, teacher, on_progress=lambda done: report.cached(done, total))
    return cache


def split_text(options: TrainOptions, conversations: list[Conversation]) -> tuple[list[int], list[int]]:
    """Indices to train on and to evaluate on."""
    outside = [held_out(item, share=options.held_out, seed=options.data_seed) for item in conversations]
    train_part = [index for index, out in enumerate(outside) if not out]
    eval_part = [index for index, out in enumerate(outside) if out]
    return train_part, eval_part


def _new_model(
    job: TrainJob, drafter_type: DrafterType, teacher: TargetModel, text: list[Conversation], report: Report
) -> BlockDrafter:
    config = drafter_type.config(job.target.config, job.shape)
    target_ids = torch.arange(config.vocab_size)
    if config.reduced_vocab:
        size = config.draft_vocab_size
        target_ids = choose_vocab(text, vocab_size=config.vocab_size, draft_vocab_size=size)
        report.note(
            f"draft vocabulary: {size} of {config.vocab_size} tokens, {coverage(text, target_ids):.1%} of the text"
        )
    frozen = drafter_type.frozen if job.shape.train_embedding else (*drafter_type.frozen, EMBEDDING)
    return make_model(
        config,
        shared_tables(target_ids, job.target),
        teacher.weights,
        sources=drafter_type.sources(config, job.target.config),
        frozen=frozen,
        seed=job.options.seed,
    )


def _trainer(
    job: TrainJob, drafter_type: DrafterType, model: BlockDrafter, cache: TeacherCache, indices: list[int]
) -> Trainer:
    trainer = Trainer(
        model,
        cache,
        indices,
        job.options,
        recipe=recipe_json(job.kind, job.shape, job.options, target=cache.key.target, data=cache.key.data),
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
            with held_interrupts():
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
    with held_interrupts(), refusals_told(job.output):
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


def _device_line(model: BlockDrafter) -> str:
    device = model.device
    name = f"cuda, {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type
    if any(isinstance(module, Mamba2Mixer) for module in model.modules()):
        name += f"; mamba scan: {'mamba_ssm' if uses_kernels(device) else 'our own in PyTorch'}"
    return f"device: {name}"


def _size_line(model: BlockDrafter, num_train: int, num_eval: int, steps: int) -> str:
    count = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    text = f"{num_train} conversations to train on, {num_eval} held out"
    return f"{count / 1e6:.2f} M trained parameters; {text}; {steps} steps"
