# SPDX-License-Identifier: Apache-2.0
"""Serves random requests for a long time and checks every single answer, then memory, pages and threads.

    python -m benchmarks.soak [--requests 10000] [--seconds 1200] [--clients 24] [--faults]

Clients are threads that ask, stream, cancel, walk away, or ask for what must be refused, at random. What each answer
must be is known beforehand (`soak_answers`). At the end the engine must hold no page and no request, every answer must
have ended once, and the process must have no more memory or threads than after the first tenth of the requests. With
``--faults`` the session breaks now and then (`soak_faults`): only the answers concerned may end with an error, and
each with its code.
"""

from __future__ import annotations

import argparse
import gc
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from benchmarks.soak_answers import Known, fault_of, known_texts, varied
from benchmarks.soak_faults import FaultySession
from hspec_trt import LLM, RuntimeOptions, SamplingParams, SchedulerOptions
from hspec_trt.config.build import BuildConfig
from hspec_trt.errors import HspecError
from hspec_trt.pipeline import build
from hspec_trt.runtime.lookahead import Lookahead
from tests.support.tiny_tokenizer import tokenizer_files

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "hspec_qwen3"
VOCAB_SIZE = 256
PAGE_BYTES = 24_576
NUM_PAGES = 40
"""For sixteen rows of up to twelve pages: preemption is a daily event."""
MAX_GROWTH_BYTES = 64 << 20
REFUSED = {"R101": {"max_tokens": 100_000}, "R201": {"temperature": -1.0}, "R207": {"stop_token_ids": (999,)}}


@dataclass
class Tally:
    """What happened, counted under a lock."""

    outcomes: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    answers: int = 0
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, outcomes: list[str], wrong: str | None, *, answers: int) -> None:
        """Count one request; `wrong` says what was wrong with it."""
        with self.lock:
            self.asked += 1
            self.outcomes.update(outcomes)
            self.answers += answers
            if wrong is not None:
                self.wrong.append(wrong)


class Client:
    """Asks until told to stop.

    Args:
        pause: mean seconds between an answer and the next request.
    """

    def __init__(self, llm: LLM, texts: list[Known], tally: Tally, stop: threading.Event, seed: int, pause: float):
        self._llm, self._texts, self._tally, self._stop = llm, texts, tally, stop
        self._rng, self._pause = random.Random(seed), pause

    def run(self) -> None:
        """The thread."""
        while not self._stop.wait(self._rng.expovariate(1.0 / self._pause) if self._pause else 0.0):
            known = self._rng.choice(self._texts)
            kind = self._rng.choice(["wait", "wait", "stream", "stream", "cancel", "leave", "refused"])
            if kind == "refused":
                self._ask_for_too_much(known)
            else:
                self._ask(known, kind)

    def _ask_for_too_much(self, known: Known) -> None:
        code = self._rng.choice(list(REFUSED))
        try:
            self._llm.generate_async(known.prompt, replace(known.params, **REFUSED[code]))  # type: ignore[arg-type]
        except HspecError as error:
            wrong = None if error.code == code else f"{error}, expected {code}"
        else:
            wrong = f"{code} was not refused"
        self._tally.note([f"refused with {code}"], wrong, answers=0)

    def _ask(self, known: Known, kind: str) -> None:
        params = varied(known, self._rng)
        generation = self._llm.generate_async(
            known.prompt, params, streaming=kind != "wait", priority=self._rng.randint(0, 1)
        )
        pieces = [""] * params.n
        if kind != "wait":
            stream = iter(generation)
            most = self._rng.randint(0, 4) if kind in ("cancel", "leave") else None
            for number, output in enumerate(stream, 1):
                for answer in output.outputs:
                    pieces[answer.index] += answer.text_diff
                if number == most:
                    break
            if kind == "leave":
                stream.close()  # type: ignore[attr-defined] # a disconnect: nobody reads on
            elif kind == "cancel":
                generation.cancel()
        answers = generation.result().outputs
        wrong = fault_of(self._llm, known, params, answers, cancelled=kind in ("cancel", "leave"))
        if kind == "stream" and pieces != [answer.text for answer in answers]:
            wrong = wrong or f"{params}: pieces {pieces} are not the texts"
        outcomes = [answer.error.code if answer.error else str(answer.finish_reason) for answer in answers]
        self._tally.note(outcomes, wrong, answers=len(answers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1200.0, help="at least so long")
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--faults", action="store_true", help="break the session now and then")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target = shutil.copytree(GOLDEN / "target", Path(folder) / "target")
        for name, content in tokenizer_files(VOCAB_SIZE).items():
            (target / name).write_bytes(content)
        engine = Path(folder) / "engine"
        build(target, GOLDEN / "drafter", engine, BuildConfig(page_size=16, max_batch_size=16))
        options = RuntimeOptions(1, kv_cache_memory=NUM_PAGES * PAGE_BYTES, scheduler=SchedulerOptions(max_chunk=32))
        with LLM(engine, options) as llm:
            run(llm, args.requests, args.seconds, args.clients, faults=args.faults)


def run(llm: LLM, requests: int, seconds: float, clients: int, *, faults: bool) -> None:
    """Soak one engine and report; exits with an error where anything was wrong."""
    core = llm._core
    session = FaultySession(core.session) if faults else None  # type: ignore[arg-type]
    if session is not None:
        core.session, session.allocator = session, core.scheduler.allocator
        core.lookahead = Lookahead(session, core.scheduler)
    texts, tally, stop = known_texts(llm, random.Random(0)), Tally(), threading.Event()
    before = sum(llm.stats.finished.values())
    if session is not None:
        session.active = True
    pause = clients * seconds / requests / 8  # most of the time is for the answers
    threads = [threading.Thread(target=Client(llm, texts, tally, stop, seed, pause).run) for seed in range(clients)]
    process, start, early, last = psutil.Process(), time.monotonic(), 0, time.monotonic()
    for thread in threads:
        thread.start()
    while tally.asked < requests or time.monotonic() - start < seconds:
        time.sleep(0.5)
        if not early and tally.asked > requests // 10:
            early = process.memory_info().rss
        if time.monotonic() - last > 60:
            last = time.monotonic()
            size = process.memory_info().rss >> 20
            print(f"{last - start:6.0f} s  {tally.asked} requests  {size} MiB  {len(tally.wrong)} wrong", flush=True)
    stop.set()
    for thread in threads:
        thread.join()
    gc.collect()
    elapsed, growth = time.monotonic() - start, process.memory_info().rss - early
    if session is not None:
        session.quiet()
    report(llm, tally, growth, elapsed, sum(llm.stats.finished.values()) - before, session)


def report(llm: LLM, tally: Tally, growth: int, seconds: float, ended: int, session: FaultySession | None) -> None:
    """Print the figures and check that nothing is left behind."""
    llm.generate([1], SamplingParams(max_tokens=1))  # the step loop has obeyed every cancel once this is back
    stats, scheduler = llm.stats, llm._core.scheduler
    print(f"{tally.asked} requests, {tally.answers} answers in {seconds:.0f} s: {dict(tally.outcomes.most_common())}")
    print(
        f"{stats.steps} steps, {stats.new_tokens} tokens, accepted length {stats.drafts.accepted_length:.2f}, "
        f"{stats.preemptions} preemptions, {stats.cached_tokens} cached tokens, memory {growth / 2**20:+.0f} MiB"
    )
    faults = tally.wrong[:5]
    if ended != tally.answers:
        faults.append(f"{ended} answers ended, {tally.answers} were asked for")
    if scheduler.allocator.in_use or not scheduler.is_idle:
        faults.append(f"{scheduler.allocator.in_use} pages still in use")
    if growth > MAX_GROWTH_BYTES:
        faults.append(f"memory grew by {growth >> 20} MiB")
    if threading.active_count() > 2:
        faults.append(f"{threading.active_count()} threads still run")
    concerned = session.concerned if session is not None else Counter[str]()
    failed = Counter({code: count for code, count in tally.outcomes.items() if code in ("R301", "R302")})
    if session is not None:
        print(f"faults: {dict(session.events)}")
    if failed != concerned:
        faults.append(f"answers that failed: {dict(failed)}, concerned: {dict(concerned)}")
    if faults:
        raise SystemExit("\n".join(["FAILED", *faults]))
    print("passed: every answer right, ended once, nothing left behind")


if __name__ == "__main__":
    main()
