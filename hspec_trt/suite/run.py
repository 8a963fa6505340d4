# SPDX-License-Identifier: Apache-2.0
"""Runs the suite: every drafter over the same prompts. The main path of ``hspec-trt bench``.

Owns the order of the work and what counts as the same comparison. Figures are made of the records afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from hspec_trt.bundle import EngineFolder, Manifest, open_engine
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import RequestError
from hspec_trt.progress import Progress
from hspec_trt.runtime.engine import Engine, make_engine
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.runtime.request import Sequence as RunningSequence
from hspec_trt.runtime.request import Update
from hspec_trt.suite.prompts import SuitePrompt, read_suite
from hspec_trt.suite.records import Record, ResultFolder
from hspec_trt.suite.timing import time_steps

OFF: Final = "drafting off"
LOOKUP: Final = "prompt lookup"


@dataclass(frozen=True)
class SuiteOptions:
    """What is asked.

    Attributes:
        per_task: prompts of each task, the first ones that fit; None is all.
        max_tokens: new tokens of an answer at most.
        max_prompt_tokens: longer prompts are passed over; None is what the engines take.
        concurrency: prompts that run at once. Drafts and text do not depend on it; more is quicker.
        time_steps: decode steps of each kind that are timed in each round; 0 is no timing.
        threads: CPU threads; None is all cores.
    """

    per_task: int | None = None
    max_tokens: int = 96
    max_prompt_tokens: int | None = None
    temperature: float = 0.0
    seed: int = 0
    concurrency: int = 1
    time_steps: int = 8
    threads: int | None = None


@dataclass(frozen=True)
class Contestant:
    """A row of the table: an engine, and how it drafts.

    Attributes:
        name: unique.
        params: sampling and drafting.
    """

    name: str
    engine: Path
    params: SamplingParams


@dataclass(frozen=True)
class SuiteResult:
    """What a finished comparison has.

    Attributes:
        manifests: by contestant.
        skipped: prompts passed over as too long, by task.
    """

    folder: ResultFolder
    manifests: dict[str, Manifest]
    skipped: dict[str, int]


def run_suite(
    engines: Sequence[Path], suite: Path, output: Path, options: SuiteOptions, progress: Progress
) -> SuiteResult:
    """Run what is not there yet.

    Args:
        engines: folders; the first one also runs without drafts and with prompt look-up.
        output: gets settings, records and timings; an interrupted run goes on from them.

    Raises:
        RequestError: R500 to R502. LoadError: an engine cannot be loaded.
    """
    tasks = read_suite(suite)
    contestants = _contestants(engines, options)
    opened = _opened(engines)
    manifests = {contestant.name: opened[contestant.engine].manifest for contestant in contestants}
    results: ResultFolder | None = None
    chosen: dict[str, list[tuple[SuitePrompt, list[int]]]] = {}
    skipped: dict[str, int] = {}
    for path, folder in opened.items():
        engine = make_engine(folder, RuntimeOptions(num_threads=options.threads))
        mine = [contestant for contestant in contestants if contestant.engine == path]
        if results is None:
            chosen, skipped = _choose(engine, tasks, options)
            keys = {task: [prompt.key for prompt, _ in rows] for task, rows in chosen.items()}
            results = ResultFolder(output, _settings(options, keys))
            results.claim({_name(path): _identity(folder) for path, folder in opened.items()})
        for contestant in mine:
            _answer(engine, contestant, chosen, results, options, progress)
        if options.time_steps:
            _time(engine, mine, chosen, results, options, progress)
    if results is None:
        raise RequestError("R502", "no engine", needed="at least one")
    return SuiteResult(results, manifests, skipped)


def _opened(engines: Sequence[Path]) -> dict[Path, EngineFolder]:
    """The engines' folders, all checked before the first engine runs.

    Raises:
        RequestError: R502 where their targets differ.
    """
    folders = {path: open_engine(path) for path in engines}
    for path, folder in folders.items():
        if folder.manifest.target != folders[engines[0]].manifest.target:
            raise RequestError("R502", "engines of different targets", needed="one target", where=str(path))
    return folders


def _name(engine: Path) -> str:
    return engine.name or engine.resolve().name


def _identity(folder: EngineFolder) -> str:
    """The same for two engines only where all their files are."""
    return sha256(folder.manifest.to_json()).hexdigest()


def _settings(options: SuiteOptions, keys: dict[str, list[str]]) -> dict[str, object]:
    free = ("concurrency", "time_steps", "threads")
    return {name: value for name, value in asdict(options).items() if name not in free} | {"prompts": keys}


def _contestants(engines: Sequence[Path], options: SuiteOptions) -> list[Contestant]:
    common = SamplingParams(max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed)
    found = [
        Contestant(OFF, engines[0], replace(common, drafts="off")),
        Contestant(LOOKUP, engines[0], replace(common, drafts="on", draft_source="prompt_lookup")),
        *(Contestant(_name(path), path, replace(common, drafts="on", draft_source="drafter")) for path in engines),
    ]
    names = [contestant.name for contestant in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RequestError("R502", f"two engines named {twice[0]!r}", needed="folders of different names")
    return found


def _choose(
    engine: Engine, tasks: dict[str, list[SuitePrompt]], options: SuiteOptions
) -> tuple[dict[str, list[tuple[SuitePrompt, list[int]]]], dict[str, int]]:
    """Prompts with their ids, by task, and how many were passed over on the way."""
    longest = engine.core.scheduler.longest - options.max_tokens
    if options.max_prompt_tokens is not None:
        longest = min(longest, options.max_prompt_tokens)
    chosen: dict[str, list[tuple[SuitePrompt, list[int]]]] = {}
    skipped: dict[str, int] = {}
    for task, prompts in tasks.items():
        chosen[task] = []
        for prompt in prompts:
            if len(chosen[task]) == options.per_task:
                break
            ids = _encode(engine, prompt)
            if len(ids) <= longest:
                chosen[task].append((prompt, ids))
            else:
                skipped[task] = skipped.get(task, 0) + 1
    if not any(chosen.values()):
        raise RequestError("R500", f"no prompt of at most {longest} tokens", fix="Build with a larger --max-seq-len")
    return chosen, skipped


def _encode(engine: Engine, prompt: SuitePrompt) -> list[int]:
    """Token ids; schemas go into a system message where the template has no place for tools."""
    if engine.tokenizer is None or engine.chat_template is None:
        raise RequestError("R107", "the engine has no chat template", needed="a target with one")
    text = engine.chat_template.render(prompt.messages, tools=prompt.tools)  # type: ignore[arg-type]
    if prompt.tools and text == engine.chat_template.render(prompt.messages):
        schemas = {"role": "system", "content": tools_text(prompt)}
        text = engine.chat_template.render([schemas, *prompt.messages])
    return engine.tokenizer.encode(text, special=False)


def tools_text(prompt: SuitePrompt) -> str:
    """The schemas as text, for models whose template knows no tools."""
    return "You can call these functions:\n" + "\n".join(json.dumps(tool) for tool in prompt.tools)


def _answer(
    engine: Engine,
    contestant: Contestant,
    chosen: dict[str, list[tuple[SuitePrompt, list[int]]]],
    results: ResultFolder,
    options: SuiteOptions,
    progress: Progress,
) -> None:
    """Answer what has no record; several prompts at once where that is asked."""
    if contestant.params.draft_source == "drafter" and not engine.core.session.limits.has_drafter:
        return
    done = {(record.drafter, record.key) for record in results.records()}
    rows = [row for task in chosen.values() for row in task]
    progress.stage(contestant.name, len(rows))
    left = [row for row in rows if (contestant.name, row[0].key) not in done]
    progress.advance(len(rows) - len(left))
    waiting, running = iter(left), dict[str, RunningSequence]()
    for prompt, ids in _fill(waiting, running, options.concurrency):
        running[prompt.key] = _start(engine, contestant, prompt, ids, results, running, progress)
    while not engine.core.is_idle:
        engine.core.step()
        for prompt, ids in _fill(waiting, running, options.concurrency):
            running[prompt.key] = _start(engine, contestant, prompt, ids, results, running, progress)


def _fill(
    waiting: Iterator[tuple[SuitePrompt, list[int]]], running: dict[str, RunningSequence], most: int
) -> Iterator[tuple[SuitePrompt, list[int]]]:
    while len(running) < most:
        row = next(waiting, None)
        if row is None:
            return
        yield row


def _start(
    engine: Engine,
    contestant: Contestant,
    prompt: SuitePrompt,
    ids: list[int],
    results: ResultFolder,
    running: dict[str, RunningSequence],
    progress: Progress,
) -> RunningSequence:
    said: list[int] = []

    def take(update: Update) -> None:
        if update.error is not None:
            raise update.error
        said.extend(update.token_ids)
        if update.finish is None or update.drafts is None or update.timing is None:
            return
        drafts, timing = update.drafts, update.timing
        results.add(
            Record(
                contestant.name,
                prompt.task,
                prompt.key,
                len(ids),
                len(said),
                update.finish,
                drafts.steps,
                drafts.emitted,
                tuple(drafts.offered),
                tuple(drafts.accepted),
                timing.finished - timing.first_token,
            )
        )
        del running[prompt.key]
        progress.advance(1)

    sequence = engine.core.make(ids, contestant.params, take)
    engine.core.add(sequence)
    return sequence


def _time(
    engine: Engine,
    contestants: Sequence[Contestant],
    chosen: dict[str, list[tuple[SuitePrompt, list[int]]]],
    results: ResultFolder,
    options: SuiteOptions,
    progress: Progress,
) -> None:
    """Step times of an engine, under the name of the contestant that uses its drafter."""
    name = contestants[-1].name
    if name in results.timings():
        return
    progress.stage(f"{name}: step times", None)
    prompt = min((ids for rows in chosen.values() for _, ids in rows), key=len)
    results.add_timing(name, time_steps(engine.core, prompt, steps=options.time_steps))
