# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt run``: one prompt, streamed, then what it cost."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click

from hspec_trt.cli.display import ERR, bytes_text
from hspec_trt.cli.runtime_options import runtime_options
from hspec_trt.config.sampling import DRAFT_SOURCES, DRAFTING, Drafting, DraftSource, SamplingParams
from hspec_trt.errors import RequestError
from hspec_trt.runtime.llm import LLM
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.runtime.results import CompletionOutput

_DEFAULTS = SamplingParams()


def parse_ids(text: str) -> list[int]:
    """Token ids from ``1,2,3`` or ``1 2 3``.

    Raises:
        RequestError: R104, an entry that is no integer.
    """
    entries = text.replace(",", " ").split()
    for entry in entries:
        if not re.fullmatch(r"-?[0-9]{1,20}", entry):
            found = f"--prompt-ids has {entry[:40]!r}"
            raise RequestError("R104", found, needed="whole numbers of at most 20 digits, such as 1,2,3")
    return [int(entry) for entry in entries]


def sampling_options(command: Callable[..., None]) -> Callable[..., None]:
    """The request options that `run` shares with other commands; defaults are those of `SamplingParams`."""
    for option in reversed(
        (
            click.option("--max-tokens", type=int, help="New tokens at most [default: what the engine can hold]."),
            click.option("--temperature", type=float, default=_DEFAULTS.temperature, show_default=True),
            click.option("--top-k", type=int, default=_DEFAULTS.top_k, show_default=True, help="0 is off."),
            click.option("--top-p", type=float, default=_DEFAULTS.top_p, show_default=True, help="1 is off."),
            click.option("--min-p", type=float, default=_DEFAULTS.min_p, show_default=True, help="0 is off."),
            click.option("--seed", type=int, help="0 <= seed < 2**63 [default: drawn]."),
            click.option("--stop", multiple=True, help="String that ends the text; may be given several times."),
            click.option("--ignore-eos", is_flag=True, help="Do not end at the model's end tokens."),
            click.option("--drafts", type=click.Choice(DRAFTING), default=_DEFAULTS.drafts, show_default=True),
            click.option("--num-drafts", type=int, help="Drafts a step at most [default: all]."),
            click.option("--draft-source", type=click.Choice(DRAFT_SOURCES), help="[default: the engine's drafter]"),
        )
    ):
        command = option(command)
    return command


@click.command(name="run", short_help="Generate text and print what it cost.")
@click.argument("engine_dir", type=click.Path(path_type=Path))
@click.option("--prompt", help="Text of the user; laid out by the chat template unless --raw.")
@click.option("--prompt-ids", help="Token ids, such as 1,2,3, instead of a text.")
@click.option("--system", help="System message before the prompt.")
@click.option("--raw", is_flag=True, help="Give the text to the model as it is, without the chat template.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end instead of a stream.")
@runtime_options
@sampling_options
def run_command(
    engine_dir: Path,
    prompt: str | None,
    prompt_ids: str | None,
    system: str | None,
    raw: bool,
    as_json: bool,
    runtime: RuntimeOptions,
    max_tokens: int | None,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int | None,
    stop: tuple[str, ...],
    ignore_eos: bool,
    drafts: Drafting,
    num_drafts: int | None,
    draft_source: DraftSource | None,
) -> None:
    """Generate from one prompt (a text, token ids, or standard input) and print tokens/s and accepted length."""
    if prompt is not None and prompt_ids is not None:
        raise click.UsageError("give --prompt or --prompt-ids, not both")
    if system is not None and (raw or prompt_ids is not None):
        raise click.UsageError("--system goes through the chat template, so it fits neither --raw nor --prompt-ids")
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        stop=stop,
        ignore_eos=ignore_eos,
        drafts=drafts,
        num_drafts=num_drafts,
        draft_source=draft_source,
    )
    ids = None if prompt_ids is None else parse_ids(prompt_ids)
    if ids is None and prompt is None:
        prompt = _read_prompt()
    with LLM(engine_dir, runtime) as llm:
        if ids is None:
            ids = _text_ids(llm, prompt or "", system, raw=raw)
        output = _stream(llm, ids, params, quiet=as_json)
        if as_json:
            click.echo(json.dumps(_plain(output, len(ids)), indent=2, ensure_ascii=False))
        else:
            _report(llm, output, len(ids))


def _read_prompt() -> str:
    if sys.stdin.isatty():
        ERR.print("the prompt, please (Ctrl-D ends it):")
    return sys.stdin.read()


def _text_ids(llm: LLM, prompt: str, system: str | None, *, raw: bool) -> list[int]:
    if raw or (llm.chat_template is None and system is None):
        return llm.encode(prompt)
    messages = [] if system is None else [{"role": "system", "content": system}]
    return llm.chat_ids([*messages, {"role": "user", "content": prompt}])


def _stream(llm: LLM, ids: list[int], params: SamplingParams, *, quiet: bool) -> CompletionOutput:
    generation = llm.generate_async(ids, params)
    answer = generation.output.outputs[0]
    for _ in generation:
        if not quiet:
            click.echo(answer.text_diff if llm.tokenizer else _ids_text(answer.token_ids_diff), nl=False)
            sys.stdout.flush()
    if answer.error is not None:
        raise answer.error
    if not quiet:
        click.echo()
    return answer


def _ids_text(ids: list[int]) -> str:
    return "".join(f"{one} " for one in ids)


def _report(llm: LLM, output: CompletionOutput, prompt_len: int) -> None:
    timing, drafts = output.timing, output.drafts
    ERR.print(
        f"\n{prompt_len} prompt tokens, {len(output.token_ids)} new ({output.finish_reason}), "
        f"{tokens_per_second(output):.1f} tokens/s, first token after {timing.time_to_first_token:.2f} s",
        markup=False,
    )
    ERR.print(
        f"mean accepted length {drafts.accepted_length:.2f} over {drafts.steps} steps "
        f"({drafts.num_accepted} of {drafts.drafted} drafts accepted)",
        markup=False,
    )
    if drafts.drafted:
        shares = "  ".join(f"{index}: {share:.2f}" for index, share in enumerate(drafts.acceptance_by_position, 1))
        ERR.print(f"acceptance by position  {shares}", markup=False)
    if drafts.without:
        reasons = "  ".join(f"{reason}: {count}" for reason, count in drafts.without.most_common())
        ERR.print(f"steps without drafts, by reason  {reasons}", markup=False)
    memory = llm.memory
    ERR.print(
        f"memory: weights {bytes_text(memory.weights)} ({'repacked' if memory.prepacked else 'mapped'}), "
        f"KV pages {bytes_text(memory.pages)} ({memory.tokens} tokens)",
        markup=False,
    )


def tokens_per_second(output: CompletionOutput) -> float:
    """New tokens after the first over the time that they took; 0 for a single token."""
    seconds = output.timing.finished - output.timing.first_token
    return (len(output.token_ids) - 1) / seconds if seconds > 0 else 0.0


def _plain(output: CompletionOutput, prompt_len: int) -> dict[str, object]:
    drafts = output.drafts
    return {
        "text": output.text,
        "token_ids": output.token_ids,
        "logprobs": output.logprobs,
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
        "prompt_tokens": prompt_len,
        "tokens_per_second": tokens_per_second(output),
        "accepted_length": drafts.accepted_length,
        "acceptance_by_position": drafts.acceptance_by_position,
        "steps": drafts.steps,
        "drafted": drafts.drafted,
        "accepted": drafts.num_accepted,
        "accepted_lengths": dict(sorted(drafts.lengths.items())),
        "steps_without_drafts": dict(drafts.without),
        "timing": asdict(output.timing),
    }
