# SPDX-License-Identifier: Apache-2.0
"""Peak memory of ``hspec-trt build`` and of a loaded engine, for a 1.2 GB bfloat16 checkpoint.

    python -m benchmarks.build_memory

`build` writes float32 weights (2.4 GB); its peak resident memory includes the mapped checkpoint. The second part loads
the engine, in a process of its own for each way of holding the weights, answers a prompt, and prints what is held then:
own memory (repacked weights, activations, Python) and pages of mapped files. Weights held twice would show as 4.8 GB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

from benchmarks.checkpoints import QWEN3_0_6B, random_checkpoint
from benchmarks.memory import memory_status
from hspec_trt.runtime.options import Prepack, RuntimeOptions


def _peak_of(command: list[str]) -> tuple[float, int]:
    """Seconds and peak resident bytes of a command."""
    start = time.perf_counter()
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{command} failed")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def _load(engine: Path, prepack: Prepack) -> None:
    from hspec_trt import LLM, SamplingParams

    before = memory_status("VmRSS")
    start = time.perf_counter()
    llm = LLM(engine, RuntimeOptions(prepack=prepack, kv_cache_memory=1 << 28))
    seconds = time.perf_counter() - start
    llm.generate([1, 2, 3], SamplingParams(max_tokens=2, temperature=0.0))
    weights, held = llm.memory.weights, memory_status("VmRSS") - before
    print(
        f"run, prepack {prepack} ({'repacked' if llm.memory.prepacked else 'mapped'}): loaded in {seconds:.1f} s, "
        f"holds {held / 1e6:.0f} MB beyond the imported modules = {held / weights:.2f} x weights "
        f"(own memory {memory_status('RssAnon') / 1e6:.0f} MB, mapped files {memory_status('RssFile') / 1e6:.0f} MB; "
        f"peak while loading {memory_status('VmHWM') / 1e6:.0f} MB)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work-dir", type=Path, default=Path("build/bench"))
    parser.add_argument("--load", nargs=2)
    options = parser.parse_args()
    if options.load:
        _load(Path(options.load[0]), next(way for way in get_args(Prepack) if way == options.load[1]))
        return
    folder = random_checkpoint(options.work_dir / "qwen3_0_6b_random", QWEN3_0_6B)
    engine = options.work_dir / "qwen3_0_6b_engine"
    shutil.rmtree(engine, ignore_errors=True)
    command = ["build", "--target", str(folder), "--output", str(engine), "--max-seq-len", "4096", "--json"]
    seconds, peak = _peak_of([sys.executable, "-m", "hspec_trt.cli", *command])
    written = (engine / "weights.safetensors").stat().st_size
    print(f"build: {seconds:.1f} s, weights written {written / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB")
    print(f"  peak = {peak / written:.2f} x weights written (limit: 1.3 x + 500 MB = {written * 1.3e-6 + 500:.0f} MB)")
    for prepack in get_args(Prepack):
        subprocess.run([sys.executable, "-m", "benchmarks.build_memory", "--load", str(engine), prepack], check=True)
    shutil.rmtree(engine)


if __name__ == "__main__":
    main()
