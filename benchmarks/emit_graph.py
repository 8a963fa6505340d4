# SPDX-License-Identifier: Apache-2.0
"""Time and memory of emitting the graph and the manifest for a 596 M-parameter bfloat16 checkpoint.

    python -m benchmarks.emit_graph [--runs 5]

Each run is a fresh process: read the checkpoint's headers, lay out the weights, emit the fused step graph, serialise
graph and manifest. No weight is converted or written. Peak memory is the process's own, less that of a process which
only imports the same modules.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.checkpoints import QWEN3_0_6B, random_checkpoint
from benchmarks.memory import memory_status


def _child(folder: Path | None) -> None:
    import onnx_ir as ir

    from hspec_trt.bundle import Manifest, plan_weights
    from hspec_trt.checkpoint.target import load_target
    from hspec_trt.config.build import BuildConfig
    from hspec_trt.dtypes import FLOAT32
    from hspec_trt.graph.step import build_step
    from hspec_trt.graph.weights import engine_weights
    from hspec_trt.pipeline import settle_limits

    start = time.perf_counter()
    if folder is not None:
        target = load_target(folder)
        config = BuildConfig()
        limits = settle_limits(config, target.config, None)
        config = replace(config, max_seq_len=limits.max_seq_len, num_drafts=limits.num_drafts)
        stored = plan_weights(engine_weights(target.tensors, None, target.config, None, FLOAT32))
        graph = ir.to_proto(build_step(target.config, None, config, stored)).SerializeToString()
        manifest = Manifest("onnxruntime", "float32", target.config, None, limits, (), (), {}).to_json()
        assert graph and manifest
    seconds = time.perf_counter() - start
    print(seconds, memory_status("VmHWM"))


def _measure(folder: Path | None) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.emit_graph", "--child", *([str(folder)] if folder else ["-"])]
    seconds, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), float(peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work-dir", type=Path, default=Path("build/bench"))
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        _child(None if options.child == "-" else Path(options.child))
        return
    folder = random_checkpoint(options.work_dir / "qwen3_0_6b_random", QWEN3_0_6B)
    idle = min(_measure(None)[1] for _ in range(2))
    runs = [_measure(folder) for _ in range(options.runs)]
    seconds = sorted(run[0] for run in runs)
    peaks = sorted(run[1] - idle for run in runs)
    print(f"graph and manifest of a 596 M-parameter checkpoint, {options.runs} runs, median (min to max):")
    print(f"  time         {statistics.median(seconds):.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f})")
    print(f"  peak memory  {statistics.median(peaks) / 1e6:.0f} MB ({peaks[0] / 1e6:.0f} to {peaks[-1] / 1e6:.0f})")


if __name__ == "__main__":
    main()
