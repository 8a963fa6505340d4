# SPDX-License-Identifier: Apache-2.0
"""A load run against an exported engine in the real server, by perf_analyzer; prints a Markdown report.

Drafting on, off and auto take turns at each concurrency, several rounds of it, so that a machine that is now faster and
now slower treats them alike; figures are medians over the rounds. perf_analyzer is the one that the tritonclient 2.51.0
wheel carries (later ones need a newer C library). Run it with the Python of the package's own environment.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from build_scripts import triton_server
from hspec_trt.bundle import open_engine
from hspec_trt.config.sampling import DRAFTING
from hspec_trt.runtime.chat import ChatTemplate
from hspec_trt.serving.triton.repository import ExportOptions, export_repository

WHEEL = "tritonclient==2.51.0"
TOOLS = triton_server.ROOT / ".cache" / "perf_analyzer"
BINARY = TOOLS / "tritonclient-2.51.0.data" / "data" / "bin" / "perf_analyzer"
LIBRARIES = {"libb64.so.0d": "libb64-*.so.0d", "libcudart.so.12": "libcudart-*.so.12*"}
"""What the binary asks for, and the copies that come with the server."""
PROMPTS = (
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Explain to a child why the sky is blue.",
    "Write a Python function that checks whether a string is a palindrome.",
    "List five tips for a good night's sleep.",
    "Summarize the plot of Romeo and Juliet.",
    "What is the difference between a virus and a bacterium?",
    "Write an email that asks a colleague to move a meeting to Thursday.",
    "Give me a recipe for pancakes.",
)


@dataclass(frozen=True)
class Run:
    """One run of perf_analyzer.

    Attributes:
        tokens_per_second: new tokens over the time from the first request to the last response.
        first_ms, latency_ms, tail_ms: to the first response (median), to the last (median and 95th percentile).
        accepted_length: tokens of a decode step.
    """

    tokens_per_second: float
    first_ms: float
    latency_ms: float
    tail_ms: float
    accepted_length: float


def install_tools(venv: Path) -> None:
    """Unpack perf_analyzer and link the libraries that it needs."""
    if not BINARY.is_file():
        TOOLS.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--platform", "manylinux1_x86_64", "-d", str(TOOLS), WHEEL], check=True)
        with zipfile.ZipFile(next(TOOLS.glob("tritonclient-2.51.0-*.whl"))) as wheel:
            wheel.extractall(TOOLS)
        BINARY.chmod(0o755)
    for name, pattern in LIBRARIES.items():
        link = TOOLS / "libs" / name
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(next(venv.glob(f"lib/python*/site-packages/nvidia_pytriton.libs/{pattern}")))


Results = dict[tuple[int, str], list[Run]]
"""Runs by concurrency and way of drafting, one a round."""


def analyzer_command(grpc: int, concurrency: int, requests: int, data: Path, report: Path) -> list[str]:
    """The command of one run."""
    return [
        str(BINARY),
        *("-m", "hspec", "-u", f"127.0.0.1:{grpc}", "-i", "grpc", "--streaming", "--async"),
        *("--concurrency-range", str(concurrency), "--request-count", str(requests)),
        *("--input-data", str(data), "--profile-export-file", str(report)),
    ]


def run_once(grpc: int, concurrency: int, requests: int, data: Path, report: Path, attempts: int = 3) -> Run:
    """One run, and its figures out of the exported profile."""
    command = analyzer_command(grpc, concurrency, requests, data, report)
    report.unlink(missing_ok=True)  # it writes over no file
    environment = {**os.environ, "LD_LIBRARY_PATH": str(TOOLS / "libs")}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if done.returncode:
        # The message comes first; pages of usage follow.
        sys.exit("error: perf_analyzer: " + (done.stderr or done.stdout).partition("Usage:")[0].strip())
    try:
        found = json.loads(report.read_text())["experiments"][0]["requests"]
    except json.JSONDecodeError:  # one run in twenty: perf_analyzer leaves a part of its file out
        if attempts == 1:
            sys.exit(f"error: perf_analyzer wrote no JSON: {report}")
        print("perf_analyzer wrote broken JSON: the run is repeated", file=sys.stderr, flush=True)
        return run_once(grpc, concurrency, requests, data, report, attempts - 1)
    last = [request["response_outputs"][-1] for request in found]
    tokens = [int(one["num_output_tokens"]) for one in last]
    # A text's first token comes with its prompt, and is no decode step's.
    decoded = sum(count - 1 for count in tokens)
    steps = sum((n - 1) / float(one["accepted_length"]) for n, one in zip(tokens, last, strict=True) if n > 1)
    first = [(request["response_timestamps"][0] - request["timestamp"]) / 1e6 for request in found]
    whole = [(request["response_timestamps"][-1] - request["timestamp"]) / 1e6 for request in found]
    seconds = (max(one["response_timestamps"][-1] for one in found) - min(one["timestamp"] for one in found)) / 1e9
    tail = sorted(whole)[min(int(0.95 * len(whole)), len(whole) - 1)]
    return Run(sum(tokens) / seconds, statistics.median(first), statistics.median(whole), tail, decoded / steps)


def median(runs: list[Run]) -> Run:
    """The median of each figure."""
    return Run(*(statistics.median(vars(run)[name] for run in runs) for name in vars(runs[0])))


def write_data(path: Path, engine_dir: Path, drafts: str, max_tokens: int) -> None:
    """perf_analyzer's input: the prompts in the model's chat layout (as text: its profile cannot hold JSON)."""
    engine = open_engine(engine_dir)
    names = ("tokenizer_config.json", "chat_template.jinja")
    template = ChatTemplate.from_files({name: data for name in names if (data := engine.text(name)) is not None})
    rows = [
        {
            "text_input": [template.render([{"role": "user", "content": prompt}]) if template else prompt],
            "max_tokens": [max_tokens],
            "temperature": [0.0],
            "drafts": [drafts],
            "stream": [True],
            "return_perf_metrics": [True],
            "return_num_output_tokens": [True],
        }
        for prompt in PROMPTS
    ]
    path.write_text(json.dumps({"data": rows}))


def machine() -> str:
    """The processor and the cores that this process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = {line.partition(": ")[2] for line in lines if line.startswith("model name")}
    return f"{', '.join(sorted(models)) or platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine_dir", type=Path)
    parser.add_argument("--concurrency", default="1,4,8", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=16, help="of one run, at least twice the concurrency")
    parser.add_argument("--max-tokens", type=int, default=64)
    options = parser.parse_args()
    venv = triton_server.install(triton_server.DEFAULT_VENV)
    install_tools(venv)
    levels = [int(level) for level in options.concurrency.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_repository(options.engine_dir, folder / "models", ExportOptions())
        http, grpc, metrics = triton_server.free_ports(3)
        record = triton_server.start(venv, folder / "models", folder / "server.log", (http, grpc, metrics), [])
        try:
            results = measure(grpc, levels, options, folder)
        finally:
            triton_server.stop(int(str(record["pid"])))
    report(results, options)


def measure(grpc: int, levels: list[int], options: argparse.Namespace, folder: Path) -> Results:
    """All runs, the ways of drafting in turn."""
    for drafts in DRAFTING:
        write_data(folder / f"{drafts}.json", options.engine_dir, drafts, options.max_tokens)
        run_once(grpc, 2, 4, folder / f"{drafts}.json", folder / "warm.json")
    runs: Results = {(level, drafts): [] for level in levels for drafts in DRAFTING}
    for turn in range(options.rounds):
        for level, drafts in runs:
            count = max(options.requests, 2 * level)
            run = run_once(grpc, level, count, folder / f"{drafts}.json", folder / "profile.json")
            runs[level, drafts].append(run)
            print(f"round {turn + 1}: {level} at a time, drafts {drafts}: {run}", file=sys.stderr, flush=True)
    return runs


def report(results: Results, options: argparse.Namespace) -> None:
    """The Markdown table."""
    print(f"{machine()}; {options.max_tokens} new tokens a request, greedy; medians of {options.rounds} rounds")
    print("[least, most].\n")
    print("| at a time | drafts | tokens/s | against off | first chunk, ms | whole, ms | p95, ms | tokens a step |")
    print("|---|---|---|---|---|---|---|---|")
    for (level, drafts), runs in results.items():
        run, off = median(runs), results[level, "off"]
        ratios = sorted(a.tokens_per_second / b.tokens_per_second for a, b in zip(runs, off, strict=True))
        against = f"{statistics.median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]" if drafts != "off" else "1.00"
        print(
            f"| {level} | {drafts} | {run.tokens_per_second:.1f} | {against} | {run.first_ms:.0f} "
            f"| {run.latency_ms:.0f} | {run.tail_ms:.0f} | {run.accepted_length:.2f} |"
        )


if __name__ == "__main__":
    main()
