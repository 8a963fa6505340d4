# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt bench``: drafters side by side on real prompts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from hspec_trt.bundle import write_atomic
from hspec_trt.cli.display import OUT, Bars
from hspec_trt.runtime.options import MAX_THREADS
from hspec_trt.suite.figures import figures
from hspec_trt.suite.report import to_json, to_markdown
from hspec_trt.suite.run import SuiteOptions, run_suite

_DEFAULTS = SuiteOptions()
_PATH = click.Path(path_type=Path)


@click.command(name="bench", short_help="Compare drafters on real prompts.")
@click.argument("engines", nargs=-1, required=True, type=_PATH)
@click.option("--suite", type=_PATH, required=True, help="Prompts, see below.")
@click.option("--output", type=_PATH, required=True, help="Folder of results; an interrupted comparison goes on there.")
@click.option("--per-task", type=click.IntRange(min=1), help="Prompts of each task, the first that fit [default: all].")
@click.option("--max-tokens", type=click.IntRange(min=2), default=_DEFAULTS.max_tokens, show_default=True)
@click.option("--max-prompt-tokens", type=click.IntRange(min=1), help="Pass over longer prompts [default: what fits].")
@click.option("--temperature", type=click.FloatRange(min=0), default=_DEFAULTS.temperature, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=_DEFAULTS.seed, show_default=True)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=_DEFAULTS.concurrency,
    show_default=True,
    help="Prompts at once: quicker, and the figures of acceptance are the same.",
)
@click.option(
    "--time-steps",
    type=click.IntRange(min=0),
    default=_DEFAULTS.time_steps,
    show_default=True,
    help="Decode steps of each kind to time in each of eight rounds; 0 is no timing.",
)
@click.option("--threads", type=click.IntRange(1, MAX_THREADS), help="CPU threads [default: all cores].")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def bench_command(
    engines: tuple[Path, ...],
    suite: Path,
    output: Path,
    per_task: int | None,
    max_tokens: int,
    max_prompt_tokens: int | None,
    temperature: float,
    seed: int,
    concurrency: int,
    time_steps: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Run every engine's drafter over the prompts of --suite and compare.

    The suite is a folder of JSON lines, each with id, task, messages and optionally tools. The first engine also runs
    without drafts and with prompt look-up, the drafter that costs nothing. OUTPUT gets table.md, figures.json and,
    with matplotlib, three pictures.
    """
    options = SuiteOptions(per_task, max_tokens, max_prompt_tokens, temperature, seed, concurrency, time_steps, threads)
    with Bars(quiet=as_json) as bars:
        result = run_suite(engines, suite, output, options, bars)
    rows = figures(result)
    text, data = to_markdown(rows), to_json(rows, result.skipped)
    write_atomic(output / "table.md", text.encode())
    write_atomic(output / "figures.json", data.encode())
    if importlib.util.find_spec("matplotlib") is not None:
        from hspec_trt.suite.plots import draw_all

        draw_all(rows, output)
    if as_json:
        click.echo(data, nl=False)
        return
    OUT.print(text, markup=False)
    for task, count in result.skipped.items():
        OUT.print(f"{task}: {count} prompts passed over as too long", markup=False)
