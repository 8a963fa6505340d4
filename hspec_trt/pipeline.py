# SPDX-License-Identifier: Apache-2.0
"""The main path of a build on one screen: checkpoints, limits, graph, weights, engine, folder.

Owns the order of the steps and the checks between them; each step's substance lives in its own layer.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import onnx_ir as ir

from hspec_trt import __version__, contract, dtypes
from hspec_trt.bundle import (
    Artifact,
    Manifest,
    StoredTensor,
    WeightSource,
    check_output,
    new_folder,
    plan_weights,
    record_file,
    write_weights,
)
from hspec_trt.bundle.layers import LAYERS_FILE
from hspec_trt.bundle.manifest import MANIFEST_FILE
from hspec_trt.bundle.weights import WEIGHTS_FILE, total_bytes
from hspec_trt.checkpoint.drafter import DrafterCheckpoint, load_drafter
from hspec_trt.checkpoint.target import TargetCheckpoint, load_target
from hspec_trt.config.build import BuildConfig, EngineLimits
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.engine import EnginePlan, check_backend, compile_engine, plan_engine, write_layers
from hspec_trt.errors import BuildError, Faults
from hspec_trt.graph.step import build_step
from hspec_trt.graph.weights import engine_weights
from hspec_trt.memory import memory_lines
from hspec_trt.progress import SILENT, Progress

GRAPH_FILE: Final = "graph.onnx"
PLAN_FILE = "rank0.engine"
LOG_FILE = "rank0.log"
LOG_SUFFIX = ".build.log"
LOOKUP_DRAFTS: Final = 7
"""Drafts a step of an engine without a drafter: those that look-up in the text may bring."""
MAX_LOOKUP_DRAFTS: Final = 15
MAX_ROWS: Final = 4096
MAX_TOKENS: Final = 1 << 20


@dataclass(frozen=True)
class BuildReport:
    """What a build made.

    Attributes:
        weight_bytes: size of the weights file.
        notes: lines that explain the engine, as kept in the manifest.
    """

    output: Path
    manifest: Manifest
    weight_bytes: int
    notes: tuple[str, ...]


Opener = Callable[[], tuple[TargetCheckpoint, DrafterCheckpoint | None]]


def build(
    target_path: Path,
    drafter_path: Path | None,
    output: Path,
    config: BuildConfig,
    *,
    force: bool = False,
    progress: Progress = SILENT,
) -> BuildReport:
    """Build an engine folder from checkpoints that say all that is needed.

    Args:
        target_path: a Hugging Face folder or a GGUF file.
        drafter_path: a drafter folder; None builds the target alone.

    The other arguments and what is raised are those of `build_from`.
    """

    def opened() -> tuple[TargetCheckpoint, DrafterCheckpoint | None]:
        target = load_target(target_path)
        return target, None if drafter_path is None else load_drafter(drafter_path, target)

    return build_from(opened, output, config, force=force, progress=progress)


def build_from(
    checkpoints: Opener, output: Path, config: BuildConfig, *, force: bool = False, progress: Progress = SILENT
) -> BuildReport:
    """Build an engine folder.

    Args:
        checkpoints: opens target and drafter, once what is cheaper was checked.
        output: the folder to make.
        force: replace an engine that is there; it survives until the new one is whole.

    Raises:
        CheckpointError, DrafterError, BuildError: what is wrong, before anything expensive where that can be known.
        MemoryError: the machine has too little memory.
    """
    check_output(output, force=force)
    compiled = config.backend != "onnxruntime"
    if compiled:
        check_backend(config)
    progress.stage("read checkpoints")
    target, drafter = checkpoints()
    limits = settle_limits(config, target.config, None if drafter is None else drafter.config)
    notes = _announce(target, drafter, config, progress)
    config = replace(config, max_seq_len=limits.max_seq_len, num_drafts=limits.num_drafts, extensions=limits.extensions)

    sources = engine_weights(
        target.tensors,
        None if drafter is None else drafter.tensors,
        target.config,
        None if drafter is None else drafter.config,
        dtypes.BY_NAME[config.dtype],
        confidence=config.draft_confidence,
    )
    stored = plan_weights(sources)
    check_disk(output, total_bytes(stored))
    with new_folder(output, force=force) as folder:
        progress.stage("emit graph")
        model = build_step(target.config, None if drafter is None else drafter.config, config, stored)
        (folder / GRAPH_FILE).write_bytes(ir.to_proto(model).SerializeToString())
        block_size = 0 if drafter is None else drafter.config.block_size
        plan = plan_engine(model, limits, config, folder, block_size=block_size) if compiled else None
        _write_weights(folder, sources, stored, progress)
        artifact = Artifact(config.backend, GRAPH_FILE)
        if plan is not None:
            artifact = _compile(plan, config, folder, output, progress)
        for name, content in target.text_files.items():
            if name != MANIFEST_FILE:
                (folder / name).write_bytes(content)
        manifest = Manifest(
            backend=config.backend,
            dtype=config.dtype,
            target=target.config,
            drafter=None if drafter is None else drafter.config,
            limits=limits,
            ops=used_ops(model),
            artifacts=(artifact,),
            files={path.name: record_file(path) for path in sorted(folder.iterdir())},
            notes=notes,
            plugins=config.plugins if compiled else "none",
            hspec_trt_version=__version__,
        )
        (folder / MANIFEST_FILE).write_bytes(manifest.to_json())
        progress.stage("sync to disk")
    return BuildReport(output, manifest, total_bytes(stored), notes)


def _announce(
    target: TargetCheckpoint, drafter: DrafterCheckpoint | None, config: BuildConfig, progress: Progress
) -> tuple[str, ...]:
    notes = [*target.warnings]
    if drafter is not None:
        notes += [*drafter.notes, *drafter.warnings]
    sizes = memory_lines(
        target.config, None if drafter is None else drafter.config, dtypes.BY_NAME[config.dtype], config.page_size
    )
    notes += [f"{title}: {value}" for title, value in sizes.items()]
    for note in notes:
        progress.note(note)
    return tuple(notes)


def settle_limits(config: BuildConfig, target: TargetConfig, drafter: DrafterConfig | None) -> EngineLimits:
    """Fill what the user left open and check what was asked, all faults together.

    Raises:
        BuildError: B020 to B026, each naming the option, its value and the range.
    """
    max_seq_len = target.max_position if config.max_seq_len is None else config.max_seq_len
    most = MAX_LOOKUP_DRAFTS if drafter is None else drafter.num_drafts
    fewest = 0 if drafter is None else 1
    num_drafts = (LOOKUP_DRAFTS if drafter is None else most) if config.num_drafts is None else config.num_drafts
    trained = "" if drafter is None else ", what the drafter was trained for"
    width = num_drafts + 1
    faults = Faults()
    for ok, code, option, found, needed in (
        (1 <= config.max_batch_size <= MAX_ROWS, "B021", "--max-batch-size", config.max_batch_size, f"1 to {MAX_ROWS}"),
        (
            2 <= max_seq_len <= target.max_position,
            "B022",
            "--max-seq-len",
            max_seq_len,
            f"2 to {target.max_position}, the target's own limit",
        ),
        (
            config.page_size in contract.PAGE_SIZES,
            "B023",
            "--page-size",
            config.page_size,
            f"one of {', '.join(map(str, contract.PAGE_SIZES))}",
        ),
        (fewest <= num_drafts <= most, "B024", "--num-drafts", num_drafts, f"{fewest} to {most}{trained}"),
        (
            config.backend != "onnxruntime" or config.dtype == "float32",
            "B025",
            "--dtype",
            config.dtype,
            "float32: ONNX Runtime computes neither bfloat16 nor, at full speed, float16 on a CPU",
        ),
        (
            1 <= config.max_num_tokens <= MAX_TOKENS,
            "B026",
            "--max-num-tokens",
            config.max_num_tokens,
            f"1 to {MAX_TOKENS}",
        ),
    ):
        if not ok:
            faults.add(BuildError(code, f"{option} is {found}", needed=needed))
    if not faults.found and config.max_batch_size * width > config.max_num_tokens:
        faults.add(_too_many_rows(config, width))
    faults.raise_any()
    return EngineLimits(
        config.max_batch_size,
        max_seq_len,
        config.max_num_tokens,
        config.page_size,
        num_drafts,
        config.settled_extensions,
    )


def _too_many_rows(config: BuildConfig, width: int) -> BuildError:
    found = (
        f"batch {config.max_batch_size} x verify width {width} = {config.max_batch_size * width} tokens "
        f"> --max-num-tokens {config.max_num_tokens}"
    )
    rows = config.max_num_tokens // width
    fewer = f"Lower --max-batch-size to {rows} or raise" if rows else f"At least {width} are needed: raise"
    return BuildError("B020", found, fix=f"{fewer} --max-num-tokens")


def check_disk(output: Path, needed: int) -> None:
    """Refuse a build whose files cannot fit.

    Raises:
        BuildError: B011 with the bytes needed and free.
    """
    free = shutil.disk_usage(output.absolute().parent).free
    if free < needed + (64 << 20):
        raise BuildError(
            "B011",
            f"{free / 2**20:.0f} MiB of disk are free",
            needed=f"{needed / 2**20 + 64:.0f} MiB",
            where=str(output.absolute().parent),
            fix="Free some space or choose another --output",
        )


def _write_weights(
    folder: Path, sources: Sequence[WeightSource], stored: dict[str, StoredTensor], progress: Progress
) -> None:
    progress.stage("write weights", sum(tensor.nbytes for tensor in stored.values()))
    write_weights(folder / WEIGHTS_FILE, sources, progress.advance)


def _compile(plan: EnginePlan, config: BuildConfig, folder: Path, output: Path, progress: Progress) -> Artifact:
    """Compile into the folder; TensorRT's messages go beside the output, where a failed build leaves them."""
    log = output.absolute().with_name(output.name + LOG_SUFFIX)
    log.unlink(missing_ok=True)
    report = compile_engine(
        plan,
        folder / WEIGHTS_FILE,
        folder / PLAN_FILE,
        log=log,
        progress=progress,
        timing_cache=config.timing_cache,
    )
    write_layers(report, folder / LAYERS_FILE)
    log.replace(folder / LOG_FILE)
    return Artifact(plan.backend.name, PLAN_FILE, report.tensorrt_version, report.sm)


def used_ops(model: ir.Model) -> tuple[str, ...]:
    """Custom ops that a graph calls, sorted."""
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    return tuple(sorted({node.op_type for node in nodes if node.domain == contract.OP_DOMAIN}))
