# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt verify``: drafts on = drafts off, token for token."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from hspec_trt.cli.display import ERR, OUT, Bars
from hspec_trt.cli.run import parse_ids
from hspec_trt.cli.runtime_options import runtime_options
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import RequestError
from hspec_trt.runtime.checks import MAX_SEED
from hspec_trt.runtime.engine import Engine, load_engine
from hspec_trt.runtime.losslessness import TEMPERATURES, Check, bound_for, own_prompts, verify
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.runtime.request import Update

EXIT_MISMATCH = 1
_OWN_PROMPTS = 4


@click.command(name="verify", short_help="Check losslessness: drafts on = drafts off.")
@click.argument("engine_dir", type=click.Path(path_type=Path))
@click.option("--prompt", "texts", multiple=True, help="A text; may be given several times.")
@click.option("--prompt-ids", multiple=True, help="Token ids, such as 1,2,3; may be given several times.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=32, show_default=True, help="New tokens per prompt.")
@click.option(
    "--seed",
    type=click.IntRange(0, MAX_SEED - 1),
    default=1234,
    show_default=True,
    help="Of sampling, and of the prompts made here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print every check as JSON.")
@runtime_options
def verify_command(
    engine_dir: Path,
    texts: tuple[str, ...],
    prompt_ids: tuple[str, ...],
    max_tokens: int,
    seed: int,
    as_json: bool,
    runtime: RuntimeOptions,
) -> int:
    """Check that drafts change nothing.

    Each prompt is answered without drafts, with the drafter's, and with scripted drafts of which the first 0 to G are
    right, at temperatures 0, 0.7 and 1.3 with one seed. Without prompts, some are made from the vocabulary. The exit
    code is 1 where texts differ by more than a near tie.
    """
    ids = [parse_ids(text) for text in prompt_ids]
    engine = load_engine(engine_dir, runtime)
    prompts = [*(_text_ids(engine, text) for text in texts), *ids]
    prompts = prompts or own_prompts(engine.core, count=_OWN_PROMPTS, seed=seed)
    for prompt in prompts:  # refuse what cannot be answered before anything runs
        engine.core.make(prompt, SamplingParams(max_tokens=1), _ignore)
    checks = _run(engine, prompts, max_tokens, seed, quiet=as_json)
    failed = [check for check in checks if not check.passed]
    if as_json:
        click.echo(json.dumps({"passed": not failed, "checks": [_plain(check) for check in checks]}, indent=2))
    else:
        _report(checks, failed)
    return EXIT_MISMATCH if failed else 0


def _ignore(_update: Update) -> None:
    return


def _text_ids(engine: Engine, text: str) -> list[int]:
    if engine.tokenizer is None:
        raise RequestError("R105", "the engine has no tokenizer", needed="token ids", fix="Use --prompt-ids 1,2,3")
    return engine.tokenizer.encode(text)


def _run(engine: Engine, prompts: list[list[int]], max_tokens: int, seed: int, *, quiet: bool) -> list[Check]:
    manifest, limits = engine.folder.manifest, engine.core.session.limits
    sources = int(limits.has_drafter) + (limits.num_drafts + 1 if limits.num_drafts else 0)
    bound = bound_for(manifest.backend, manifest.dtype)
    checks = []
    with Bars(quiet=quiet) as bars:
        bars.stage("verify", len(prompts) * len(TEMPERATURES) * sources)
        for check in verify(engine.core, prompts, bound=bound, max_tokens=max_tokens, seed=seed):
            checks.append(check)
            bars.advance(1)
            if check.difference is not None:
                bars.note(f"verify: {check}")
    return checks


def _report(checks: list[Check], failed: list[Check]) -> None:
    if not checks:
        ERR.print("verify: this engine carries no drafts, so there is nothing to compare", markup=False)
        return
    ties = sum(check.difference is not None for check in checks) - len(failed)
    lengths = [check.accepted_length for check in checks]
    OUT.print(
        f"verify: {'FAILED' if failed else 'passed'}: {len(checks)} comparisons, {len(failed)} mismatches, "
        f"{ties} near ties, {sum(check.num_tokens for check in checks)} tokens, "
        f"mean accepted lengths {min(lengths):.2f} to {max(lengths):.2f}",
        markup=False,
    )


def _plain(check: Check) -> dict[str, object]:
    return asdict(check) | {"passed": check.passed}
