# SPDX-License-Identifier: Apache-2.0
"""Throughput, time to first token, gaps between tokens, pages and accepted length under load, in one run.

    python -m benchmarks.load ENGINE_DIR --results load.json [--budget 220] [--repeats 3]
    python -m benchmarks.load --report load.json --plots docs/load.png

Starts `hspec-trt serve` and asks it the same mixed requests with 1, 4, 16 and 32 clients, drafting off, on and auto.
A round goes through all of these; rounds are repeated, so that a machine whose speed drifts slows all of them. Each
finished part is kept in the results file: with a budget of seconds the command stops in time, and started again it goes
on where it was. Texts must be the same in every part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from benchmarks.load.client import Answer, make_requests, read_metrics, run_clients
from benchmarks.load.report import print_tables, save_plots

MODES = ("off", "on", "auto")
CLIENTS = {1: 6, 4: 12, 16: 24, 32: 40}
"""Requests of a part by its number of clients."""
PAGES = "hspec_kv_cache_usage_perc"
POLL_SECONDS = 0.25


@contextmanager
def serving(engine: Path, threads: int) -> Iterator[int]:
    """A server on a free port; gives the port."""
    command = [sys.executable, "-m", "hspec_trt.cli", "serve", str(engine), "--port", "0", "--threads", str(threads)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, "--kv-cache-memory", "2GiB"], stdout=log, stderr=log)
        try:
            found = None
            while not found:
                time.sleep(0.1)
                log.seek(0)
                text = log.read().decode()
                if process.poll() is not None:
                    raise RuntimeError(text)
                found = re.search(r"serving .*http://[^:]*:(\d+)", text)
            yield int(found[1])
        finally:
            process.terminate()
            process.wait()


async def measure(port: int, mode: str, clients: int) -> tuple[list[Answer], float, float]:
    """One part: answers, seconds, and the largest share of pages in use that was seen."""
    bodies = [body | {"drafts": mode} for body in make_requests(CLIENTS[clients])]
    shares = [0.0]

    async def watch() -> None:
        while True:
            shares.append((await read_metrics(port, (PAGES,)))[PAGES])
            await asyncio.sleep(POLL_SECONDS)

    watcher = asyncio.create_task(watch())
    answers, seconds = await run_clients(port, bodies, clients)
    watcher.cancel()
    return answers, seconds, max(shares)


def run(options: argparse.Namespace) -> bool:
    """Run what is missing within the budget; returns whether all is there."""
    path: Path = options.results
    parts = json.loads(path.read_text()) if path.exists() else []
    done = {(part["round"], part["clients"], part["drafts"]) for part in parts}
    todo = [
        (number, clients, mode)
        for number in range(options.repeats)
        for clients in CLIENTS
        for mode in MODES[number % 3 :] + MODES[: number % 3]
        if (number, clients, mode) not in done
    ]
    started = time.monotonic()
    if not todo:
        return True
    with serving(options.engine_dir, options.threads) as port:
        for mode in MODES:  # what a step costs must be known before "auto" can choose
            asyncio.run(run_clients(port, [body | {"drafts": mode} for body in make_requests(4)], 2))
        for number, clients, mode in todo:
            if time.monotonic() - started > options.budget:
                return False
            answers, seconds, share = asyncio.run(measure(port, mode, clients))
            texts_must_agree(parts, clients, answers)
            part = {"round": number, "clients": clients, "drafts": mode, "seconds": seconds, "page_share": share}
            parts.append(part | {"answers": [asdict(answer) for answer in answers]})
            path.write_text(json.dumps(parts))
            tokens = sum(answer.tokens for answer in answers)
            print(f"round {number}, {clients} clients, {mode}: {tokens / seconds:.1f} tokens/s", flush=True)
    return True


def texts_must_agree(parts: list[dict], clients: int, answers: list[Answer]) -> None:
    """Whatever the drafts and the company, a request's text is the same."""
    for part in parts:
        pairs = zip(part["answers"], answers, strict=False)
        different = sum(one["text"] != other.text for one, other in pairs)
        if different:
            raise RuntimeError(f"{different} texts differ from those with {part['clients']} clients, {part['drafts']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine_dir", type=Path, nargs="?")
    parser.add_argument("--results", type=Path, default=Path("load.json"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no part is begun")
    parser.add_argument("--report", type=Path, help="print tables of these results, and run nothing")
    parser.add_argument("--plots", type=Path, help="PNG of the results")
    options = parser.parse_args()
    if options.report is None:
        if options.engine_dir is None:
            parser.error("ENGINE_DIR or --report, please")
        if not run(options):
            print("not finished: start it again to go on")
            return
    parts = json.loads((options.report or options.results).read_text())
    print_tables(parts)
    if options.plots is not None:
        save_plots(parts, options.plots)


if __name__ == "__main__":
    main()
