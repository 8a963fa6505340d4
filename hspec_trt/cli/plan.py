# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt plan``."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from rich.table import Table

from hspec_trt import dtypes
from hspec_trt.bundle import plan_weights
from hspec_trt.bundle.weights import total_bytes
from hspec_trt.cli.checkpoint_options import Checkpoints, checkpoint_options
from hspec_trt.cli.display import OUT, bytes_text, key_value_table
from hspec_trt.config.build import BuildConfig
from hspec_trt.engine.estimate import BuildEstimate, estimate_build
from hspec_trt.errors import BuildError
from hspec_trt.graph.weights import engine_weights
from hspec_trt.memory import kv_cost
from hspec_trt.pipeline import settle_limits
from hspec_trt.roofline import GPUS, StepBound, requests_that_fit, step_bound

_DEFAULTS = BuildConfig()


@click.command(name="plan", short_help="Memory and speed on paper, before any build.")
@checkpoint_options
@click.option("--gpu", "gpu_name", required=True, type=click.Choice(list(GPUS)), help="GPU that will run the engine.")
@click.option(
    "--dtype", type=click.Choice([d.name for d in (dtypes.FLOAT16, dtypes.BFLOAT16)]), default=dtypes.BFLOAT16.name
)
@click.option("--context", type=click.IntRange(1), default=1024, show_default=True, help="Tokens before a step's row.")
@click.option("--max-batch-size", type=int, default=_DEFAULTS.max_batch_size, show_default=True, help="Rows a step.")
@click.option("--max-num-tokens", type=int, default=_DEFAULTS.max_num_tokens, show_default=True)
@click.option("--page-size", type=int, default=_DEFAULTS.page_size, show_default=True, help="Tokens a KV page holds.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan_command(
    checkpoints: Checkpoints,
    gpu_name: str,
    dtype: str,
    context: int,
    max_batch_size: int,
    max_num_tokens: int,
    page_size: int,
    as_json: bool,
) -> None:
    """Show what a build will take and what the engine can do at best, before anything is built.

    Times are roofline bounds from the GPU's data sheet: no step can be faster. Their ratio says from what mean accepted
    length on drafts pay.
    """
    model, draft = checkpoints.open()
    draft_config = None if draft is None else draft.config
    config = BuildConfig(
        dtype=dtype,
        backend="tensorrt-rtx",
        max_batch_size=max_batch_size,
        max_num_tokens=max_num_tokens,
        page_size=page_size,
        num_drafts=checkpoints.options.num_drafts,
    )
    limits = settle_limits(config, model.config, draft_config)
    if context > limits.max_seq_len:
        needed = f"1 to {limits.max_seq_len}, the target's own limit"
        raise BuildError("B027", f"--context is {context}", needed=needed)
    kind, gpu = dtypes.BY_NAME[dtype], GPUS[gpu_name]
    stored = engine_weights(
        model.tensors, None if draft is None else draft.tensors, model.config, draft_config, kind, confidence=False
    )
    weight_bytes = total_bytes(plan_weights(stored))
    estimate = estimate_build(weight_bytes, plugins=True)
    cost = kv_cost(model.config, draft_config, kind)
    lengths = sorted({context, limits.max_seq_len})
    fits = {length: requests_that_fit(gpu, weight_bytes, cost, length, page_size) for length in lengths}
    bounds = [
        step_bound(gpu, model.config, draft_config, kind, num_drafts=limits.num_drafts, context=context, rows=rows)
        for rows in sorted({1, 4, 16, 64, max_batch_size})
        if rows <= max_batch_size
    ]
    if as_json:
        steps = [asdict(bound) | {"break_even": bound.break_even} for bound in bounds]
        build = {"weight_bytes": weight_bytes, **asdict(estimate)}
        click.echo(json.dumps({"gpu": gpu_name, "build": build, "requests": fits, "steps": steps}, indent=2))
        return
    OUT.print(key_value_table("build", _build_rows(weight_bytes, estimate)))
    rows = {f"requests of {length:,} tokens at once": f"{count:,}" for length, count in fits.items()}
    memory = {"memory": bytes_text(gpu.memory), "KV per token": f"{cost.per_token:,} B", **rows}
    OUT.print(key_value_table(gpu_name, dict(memory)))
    OUT.print(_steps_table(bounds, limits.num_drafts, context))


def _build_rows(weight_bytes: int, estimate: BuildEstimate) -> dict[str, object]:
    return {
        "weights": bytes_text(weight_bytes),
        "host memory": f"about {bytes_text(estimate.memory_bytes)}",
        "disk": bytes_text(weight_bytes + estimate.disk_bytes),
        "time": f"about {estimate.seconds:.0f} s on two cores",
    }


def _steps_table(bounds: list[StepBound], num_drafts: int, context: int) -> Table:
    """Microseconds at best by batch size."""
    title = f"a step at best, {context:,} tokens of context, {num_drafts} drafts (µs; real steps are slower)"
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("rows", "drafts off", "target, verifying", "draft pass", "drafts pay from accepted length"):
        table.add_column(column, justify="right")
    for bound in bounds:
        times = (f"{seconds * 1e6:,.1f}" for seconds in (bound.off, bound.target, bound.drafter))
        table.add_row(str(bound.rows), *times, f"{bound.break_even:.2f}")
    return table
