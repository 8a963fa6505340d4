# SPDX-License-Identifier: Apache-2.0
"""Serves random requests for a long time and checks every single answer, then memory, pages and threads.

    python -m benchmarks.soak [--requests 10000] [--seconds 1200] [--clients 24]

Clients are threads that ask, stream, cancel or walk away at random. What each answer must be is known beforehand: the
text of its prompt and seed without drafts or company, cut by the rules of stopping. At the end the engine must hold no
page and no request, and the process no more memory or threads than after the first tenth of the requests.
"""

from __future__ import annotations

import argparse
import gc
import random
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from hspec_trt import LLM, RuntimeOptions, SamplingParams, SchedulerOptions
from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from hspec_trt.runtime.results import CompletionOutput

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "hspec_qwen3"
LENGTH = 120
NUM_TEXTS = 60
MAX_GROWTH_BYTES = 64 << 20


@dataclass(frozen=True)
class Known:
    """A prompt with options, and its text of `LENGTH` tokens."""

    prompt: list[int]
    params: SamplingParams
    text: list[int]


@dataclass
class Tally:
    """What happened, counted under a lock."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, outcome: str, wrong: str | None = None) -> None:
        """Count one request; `wrong` says what was wrong with its answer."""
        with self.lock:
            self.outcomes[outcome] += 1
            if wrong is not None:
                self.wrong.append(wrong)

    @property
    def total(self) -> int:
        """Requests that ended."""
        return sum(self.outcomes.values())


def known_texts(llm: LLM, rng: random.Random) -> list[Known]:
    """Texts without drafts and without company."""
    known = []
    shared = [rng.randrange(256) for _ in range(40)]
    for number in range(NUM_TEXTS):
        prompt = [*shared[: rng.choice([0, 16, 40])], *(rng.randrange(256) for _ in range(rng.choice([1, 7, 16, 30])))]
        params = SamplingParams(
            max_tokens=LENGTH,
            temperature=rng.choice([0.0, 0.7, 1.3]),
            top_k=rng.choice([0, 0, 30]),
            top_p=rng.choice([1.0, 0.9]),
            min_p=rng.choice([0.0, 0.05]),
            seed=number,
            ignore_eos=True,
            drafts="off",
        )
        known.append(Known(prompt, params, llm.generate(prompt, params).outputs[0].token_ids))
    return known


def expected_of(known: Known, params: SamplingParams) -> tuple[list[int], str]:
    """What an answer must be under other lengths and end tokens."""
    text = known.text[: params.max_tokens]
    place = next((i for i, token in enumerate(text) if token in params.stop_token_ids), None)
    return (text, "length") if place is None else (text[: place + 1], "stop_token")


def fault_of(answer: CompletionOutput, known: Known, params: SamplingParams, *, cancelled: bool) -> str | None:
    """What is wrong with an answer, in words; None where nothing is."""
    expected, reason = expected_of(known, params)
    if answer.finish_reason == "cancelled" and cancelled:
        right = expected[: len(answer.token_ids)] == answer.token_ids
    else:
        right = (answer.token_ids, answer.finish_reason) == (expected, reason)
    if not right:
        return f"{params}: {answer.finish_reason} {answer.token_ids}, expected {reason} {expected}"
    if answer.drafts.emitted != len(answer.token_ids) or len(answer.logprobs) != len(answer.token_ids):
        return f"counters disagree: {answer.drafts.emitted} {len(answer.logprobs)} {len(answer.token_ids)}"
    return None


def client(llm: LLM, texts: list[Known], tally: Tally, stop: threading.Event, seed: int) -> None:
    """One client: asks until told to stop."""
    rng = random.Random(seed)
    while not stop.is_set():
        known = rng.choice(texts)
        params = replace(
            known.params,
            max_tokens=rng.randint(1, LENGTH),
            stop_token_ids=tuple(rng.sample(range(256), rng.choice([0, 0, 3]))),
            drafts=rng.choice(["on", "off", "auto"]),
            draft_source=rng.choice([None, "prompt_lookup", "both"]),
        )
        kind = rng.choice(["wait", "wait", "stream", "cancel", "leave"])
        generation = llm.generate_async(known.prompt, params, streaming=kind != "wait", priority=rng.randint(0, 1))
        if kind in ("cancel", "leave"):
            stream = iter(generation)
            for _ in range(rng.randint(0, 4)):
                next(stream, None)
            if kind == "leave":
                stream.close()  # a disconnect: nobody reads on
            else:
                generation.cancel()
        answer = generation.result().outputs[0]
        tally.note(str(answer.finish_reason), fault_of(answer, known, params, cancelled=kind in ("cancel", "leave")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1200.0, help="at least so long")
    parser.add_argument("--clients", type=int, default=24)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = Path(folder) / "engine"
        build(GOLDEN / "target", GOLDEN / "drafter", engine, BuildConfig(page_size=16, max_batch_size=16))
        # 40 pages for sixteen rows of up to twelve: preemption is a daily event
        options = RuntimeOptions(1, kv_cache_memory=40 * 24_576, scheduler=SchedulerOptions(max_chunk=32))
        with LLM(engine, options) as llm:
            run(llm, args.requests, args.seconds, args.clients)


def run(llm: LLM, requests: int, seconds: float, clients: int) -> None:
    """Soak one engine and report; exits with an error where anything was wrong."""
    texts, tally, stop = known_texts(llm, random.Random(0)), Tally(), threading.Event()
    threads = [threading.Thread(target=client, args=(llm, texts, tally, stop, seed)) for seed in range(clients)]
    process, start, early = psutil.Process(), time.monotonic(), 0
    for thread in threads:
        thread.start()
    last = start
    while tally.total < requests or time.monotonic() - start < seconds:
        time.sleep(0.5)
        if not early and tally.total > requests // 10:
            early = process.memory_info().rss
        if time.monotonic() - last > 30:
            last = time.monotonic()
            print(f"{last - start:6.0f} s  {tally.total} requests  {process.memory_info().rss >> 20} MiB", flush=True)
    stop.set()
    for thread in threads:
        thread.join()
    gc.collect()
    report(llm, tally, process.memory_info().rss - early, time.monotonic() - start)


def report(llm: LLM, tally: Tally, growth: int, seconds: float) -> None:
    """Print the figures and check that nothing is left behind."""
    llm.generate([1], SamplingParams(max_tokens=1))  # the step loop has obeyed every cancel once this is back
    stats, scheduler = llm.stats, llm._core.scheduler
    print(f"{tally.total} requests in {seconds:.0f} s: {dict(tally.outcomes)}")
    print(
        f"{stats.steps} steps, {stats.new_tokens} tokens, accepted length {stats.drafts.accepted_length:.2f}, "
        f"{stats.preemptions} preemptions, {stats.cached_tokens} cached tokens, memory {growth / 2**20:+.0f} MiB"
    )
    faults = tally.wrong[:5]
    if scheduler.allocator.in_use or not scheduler.is_idle:
        faults.append(f"{scheduler.allocator.in_use} pages still in use")
    if growth > MAX_GROWTH_BYTES:
        faults.append(f"memory grew by {growth >> 20} MiB")
    if threading.active_count() > 2:
        faults.append(f"{threading.active_count()} threads still run")
    if faults:
        raise SystemExit("\n".join(["FAILED", *faults]))
    print("passed: every answer right, nothing left behind")


if __name__ == "__main__":
    main()
