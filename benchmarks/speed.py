# SPDX-License-Identifier: Apache-2.0
"""Tokens/s of our engine with drafts off, on with k = 1 to G, and auto, beside transformers greedy, in one process.

    python -m benchmarks.speed ENGINE_DIR --target FILE_OR_FOLDER [--data PROMPTS.jsonl] [--prompts 24] [--tokens 64]

Both sides run float32 on the same number of threads and the same prompts, taken in turn, so that a machine whose speed
drifts slows all of them. Every figure is a ratio per prompt: median, and quartiles in brackets. All texts are compared
with transformers'; a difference is printed with its position.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.transformers_target import TransformersTarget
from hspec_trt import LLM, SamplingParams
from hspec_trt.runtime.options import RuntimeOptions

OWN_PROMPTS = Path(__file__).with_name("prompts.jsonl")
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)


def read_messages(path: Path, count: int) -> list[list[dict[str, str]]]:
    """The first prompts of a JSON-lines file with `messages`, spread evenly over it."""
    rows = [json.loads(line)["messages"] for line in path.read_text().splitlines()]
    picked = np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)
    return [rows[index] for index in picked]


def quartiles(values: list[float]) -> str:
    """``median [lower quartile, upper quartile]``."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def measure(llm: LLM, ids: list[int], params: SamplingParams) -> tuple[float, list[int], float]:
    """Seconds per token after the first, tokens, and mean accepted length."""
    answer = llm.generate(ids, params).outputs[0]
    seconds = answer.timing.finished - answer.timing.first_token
    return seconds / (len(answer.token_ids) - 1), answer.token_ids, answer.drafts.accepted_length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine_dir", type=Path)
    parser.add_argument("--target", type=Path, required=True, help="the checkpoint that the engine was built from")
    parser.add_argument("--data", type=Path, default=OWN_PROMPTS)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()

    reference = TransformersTarget(options.target, options.threads)
    with LLM(options.engine_dir, RuntimeOptions(num_threads=options.threads)) as llm:
        base = replace(GREEDY, max_tokens=options.tokens)
        variants = {"off": replace(base, drafts="off")}
        for k in range(1, llm.folder.manifest.limits.num_drafts + 1):
            variants[f"on, k = {k}"] = replace(base, drafts="on", num_drafts=k)
        variants["auto"] = replace(base, drafts="auto")
        prompts = [llm.chat_ids(messages) for messages in read_messages(options.data, options.prompts)]
        limit = llm.folder.manifest.limits.max_seq_len - options.tokens
        prompts = [ids for ids in prompts if len(ids) < limit]
        results = {name: [] for name in variants}  # type: dict[str, list[tuple[float, float, float]]]
        for ids in prompts:
            start = time.perf_counter()
            expected, seconds = reference.generate(ids, options.tokens)
            for name, params in variants.items():
                ours, tokens, length = measure(llm, ids, params)
                results[name].append((ours, seconds, length))
                if tokens != expected:
                    at = next(i for i, pair in enumerate(zip(tokens, expected, strict=True)) if pair[0] != pair[1])
                    print(f"differs from transformers at new token {at} ({name})")
            print(f"prompt of {len(ids)} tokens: {time.perf_counter() - start:.1f} s", flush=True)

    off = [ours for ours, _, _ in results["off"]]
    theirs = [seconds for _, seconds, _ in results["off"]]
    print(f"\n{len(prompts)} prompts, {options.tokens} new tokens each, {options.threads} thread(s), float32, greedy")
    print(f"transformers: {quartiles([1 / seconds for seconds in theirs])} tokens/s\n")
    print("| drafts | tokens/s | against transformers | against drafts off | accepted length |")
    print("|---|---|---|---|---|")
    for name, rows in results.items():
        speed = quartiles([1 / ours for ours, _, _ in rows])
        against = quartiles([seconds / ours for ours, seconds, _ in rows])
        gain = quartiles([mine / ours for mine, (ours, _, _) in zip(off, rows, strict=True)])
        print(f"| {name} | {speed} | {against} | {gain} | {np.mean([length for _, _, length in rows]):.2f} |")


if __name__ == "__main__":
    main()
