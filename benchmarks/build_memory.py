# SPDX-License-Identifier: Apache-2.0
"""Peak memory of ``hspec-trt build`` and of a loaded engine, for a 1.2 GB bfloat16 checkpoint.

    python -m benchmarks.build_memory

`build` writes float32 weights (2.4 GB); its peak resident memory includes the mapped checkpoint. The second part loads
the engine, runs one step and prints anonymous memory (copies) and file-backed memory (mapped) apart.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.checkpoints import QWEN3_0_6B, random_checkpoint
from benchmarks.memory import memory_status


def _peak_of(command: list[str]) -> tuple[float, int]:
    """Seconds and peak resident bytes of a command."""
    start = time.perf_counter()
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{command} failed")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def _load(engine: Path, prepack: str) -> None:
    from hspec_trt import LLM, SamplingParams
    from hspec_trt.runtime.options import RuntimeOptions

    start = time.perf_counter()
    llm = LLM(engine, RuntimeOptions(prepack="on" if prepack == "on" else "off", kv_cache_memory=1 << 28))
    llm.generate([1, 2, 3], SamplingParams(max_tokens=2, temperature=0.0))
    print(
        f"  loaded (repacking {prepack}) in {time.perf_counter() - start:.1f} s: "
        f"anonymous {memory_status('RssAnon') / 1e6:.0f} MB, "
        f"file-backed {memory_status('RssFile') / 1e6:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work-dir", type=Path, default=Path("build/bench"))
    parser.add_argument("--load", nargs=2)
    options = parser.parse_args()
    if options.load:
        _load(Path(options.load[0]), options.load[1])
        return
    folder = random_checkpoint(options.work_dir / "qwen3_0_6b_random", QWEN3_0_6B)
    engine = options.work_dir / "qwen3_0_6b_engine"
    shutil.rmtree(engine, ignore_errors=True)
    command = ["build", "--target", str(folder), "--output", str(engine), "--max-seq-len", "4096", "--json"]
    seconds, peak = _peak_of([sys.executable, "-m", "hspec_trt.cli", *command])
    written = (engine / "weights.safetensors").stat().st_size
    print(f"build: {seconds:.1f} s, weights written {written / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB")
    print(f"  peak = {peak / written:.2f} x weights written (limit: 1.3 x + 500 MB = {written * 1.3e-6 + 500:.0f} MB)")
    for prepack in ("off", "on"):
        subprocess.run([sys.executable, "-m", "benchmarks.build_memory", "--load", str(engine), prepack], check=True)
    shutil.rmtree(engine)


if __name__ == "__main__":
    main()
