# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt build``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import get_args

import click

from hspec_trt import dtypes
from hspec_trt.bundle import check_place
from hspec_trt.cli.checkpoint_options import Checkpoints, checkpoint_options
from hspec_trt.cli.display import OUT, Bars, bytes_text
from hspec_trt.config.build import (
    BACKENDS,
    EXTENSION_NAMES,
    Backend,
    BuildConfig,
    ExtensionName,
    PluginMode,
)
from hspec_trt.config.drafters_block import WindowRule
from hspec_trt.errors import BuildError
from hspec_trt.pipeline import BuildReport, build_from

_DEFAULTS = BuildConfig()
_PATH = click.Path(path_type=Path)


@click.command(name="build", short_help="Build an engine folder.")
@checkpoint_options
@click.option("--output", required=True, type=_PATH, help="Engine folder to make.")
@click.option("--backend", type=click.Choice(BACKENDS), default=_DEFAULTS.backend, show_default=True)
@click.option(
    "--dtype",
    type=click.Choice([d.name for d in (dtypes.FLOAT32, dtypes.FLOAT16, dtypes.BFLOAT16)]),
    help="Type of weights, activations and pages [default: float32 on a CPU, bfloat16 on a GPU].",
)
@click.option("--max-batch-size", type=int, default=_DEFAULTS.max_batch_size, show_default=True, help="Rows a step.")
@click.option("--max-seq-len", type=int, help="Prompt plus new tokens of a request [default: the target's limit].")
@click.option(
    "--max-num-tokens", type=int, default=_DEFAULTS.max_num_tokens, show_default=True, help="Tokens of one step."
)
@click.option("--page-size", type=int, default=_DEFAULTS.page_size, show_default=True, help="Tokens a KV page holds.")
@click.option(
    "--extension",
    "extensions",
    multiple=True,
    type=click.Choice(EXTENSION_NAMES),
    help="Optional part of the step: penalties and biases, guided decoding, top log-probabilities; may be given "
    "several times [default: all on the onnxruntime backend, none elsewhere].",
)
@click.option("--sm", help="GPU architectures of a TensorRT-RTX engine, such as 89,120 [default: all from 80 to 120].")
@click.option(
    "--plugins",
    type=click.Choice(get_args(PluginMode)),
    default=_DEFAULTS.plugins,
    show_default=True,
    help="How TensorRT computes the custom ops: plugin kernels, or none: its own layers, slower.",
)
@click.option(
    "--timing-cache",
    type=_PATH,
    help="File of TensorRT's measurements: read where it exists, and written [default: none].",
)
@click.option(
    "--draft-window",
    type=click.Choice(get_args(WindowRule)),
    default=_DEFAULTS.draft_window,
    show_default=True,
    help="Edge of a drafter's sliding windows: each slot's own, or the anchor's for all, to compare with training.",
)
@click.option(
    "--draft-confidence",
    is_flag=True,
    help="Give the confidence head's estimate of each draft as an output of the step.",
)
@click.option("--force", is_flag=True, help="Replace an engine folder that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def build_command(
    checkpoints: Checkpoints,
    output: Path,
    backend: Backend,
    dtype: str | None,
    max_batch_size: int,
    max_seq_len: int | None,
    max_num_tokens: int,
    page_size: int,
    extensions: tuple[ExtensionName, ...],
    sm: str | None,
    plugins: PluginMode,
    timing_cache: Path | None,
    draft_window: WindowRule,
    draft_confidence: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Build an engine folder from a target and a drafter.

    Everything cheap is checked before the first expensive step. The folder appears whole or not at all.
    """
    config = BuildConfig(
        backend=backend,
        dtype=dtype or (_DEFAULTS.dtype if backend == "onnxruntime" else dtypes.BFLOAT16.name),
        max_batch_size=max_batch_size,
        max_seq_len=max_seq_len,
        max_num_tokens=max_num_tokens,
        page_size=page_size,
        num_drafts=checkpoints.options.num_drafts,
        extensions=extensions or None,
        sm=_architectures(sm, backend),
        plugins=plugins,
        draft_window=draft_window,
        draft_confidence=draft_confidence,
        timing_cache=_timing_cache(timing_cache, backend),
    )
    start = time.monotonic()
    with Bars(quiet=as_json) as bars:
        report = build_from(checkpoints.open, output, config, force=force, progress=bars)
    seconds = time.monotonic() - start
    if as_json:
        click.echo(json.dumps(_plain(report, seconds), indent=2))
    else:
        OUT.print(
            f"built {report.output} in {seconds:.1f} s: {report.manifest.backend}, {report.manifest.dtype}, "
            f"weights {bytes_text(report.weight_bytes)}, up to {report.manifest.limits.num_drafts} drafts a step",
            markup=False,
        )


def _architectures(text: str | None, backend: Backend) -> tuple[int, ...]:
    if text is not None and backend == "onnxruntime":
        raise BuildError("B044", f"--sm {text} for a CPU", needed="--backend tensorrt-rtx or tensorrt")
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        raise BuildError("B044", f"--sm {text}", needed="numbers with commas between them, such as 89,120")
    return tuple(int(part) for part in parts)


def _timing_cache(path: Path | None, backend: Backend) -> Path | None:
    if path is not None and backend == "onnxruntime":
        raise BuildError("B043", f"--timing-cache {path} for a CPU", needed="--backend tensorrt-rtx or tensorrt")
    if path is not None:
        if path.is_dir():
            raise BuildError("B005", f"--timing-cache {path} is a folder", needed="a file")
        check_place(path)
    return path


def _plain(report: BuildReport, seconds: float) -> dict[str, object]:
    return {
        "output": str(report.output),
        "backend": report.manifest.backend,
        "dtype": report.manifest.dtype,
        "seconds": round(seconds, 3),
        "weight_bytes": report.weight_bytes,
        "notes": list(report.notes),
    }
