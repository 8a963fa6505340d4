# SPDX-License-Identifier: Apache-2.0
"""Trains the drafters that docs/drafters.md compares: equal data, steps and number of parameters.

Run it as ``python -m benchmarks.drafter_comparison --target FILE --data FILE --output FOLDER``. Every run is one
``hspec-trt train`` on one thread; they share one teacher cache and go on where they were stopped. The MLP widths make
the numbers of trained parameters equal to within 0.2 %. ``--size`` chooses how much text there is and how long they
train; runs of different sizes need different folders.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

COMMON = (
    "--mask-token-id 16 --draft-vocab-size 9216 --sliding-window 512 --held-out 0.045"
    " --cache-hidden-layers 8,22,29 --cache-kv-layers 15,28 --cache-all-rows --no-bfloat16"
    " --short-slots 2 --full-every 5 --warmup-steps 20 --threads 1 --eval-minutes 1000 --save-minutes 2"
)
SIZES = {
    "short": "--max-conversations 1056 --chunks-per-step 2 --anchors-per-chunk 18 --steps 900",
    "long": "--max-conversations 2100 --prompt-anchors --chunks-per-step 2 --anchors-per-chunk 36 --steps 2000",
}
"""Text, batches and steps: 101,000 response tokens, or 524,000 tokens of prompts and responses."""
_FUSED = "--fused-layers 8,22,29"
_MAMBA = "--mamba-num-heads 6 --mamba-n-groups 2"
_HYBRID = "--kv-layers 15,28 --block-pattern mamba,mlp,mamba,attention,mlp,mamba,attention,mlp"
VARIANTS = {
    "hspec": ("hspec", f"{_HYBRID} {_MAMBA} {_FUSED} --markov-rank 24 --intermediate-size 512"),
    "dflash": ("dflash", f"--num-layers 4 {_FUSED} --intermediate-size 752"),
    "dspark": ("dspark", f"--num-layers 4 {_FUSED} --markov-rank 24 --intermediate-size 552"),
    "peagle": ("peagle", f"--num-layers 4 {_FUSED} --intermediate-size 672 --cod-rate 0.7"),
    "kv-only": (
        "hspec",
        "--kv-layers 15,28,15,28 --block-pattern attention,mlp,attention,mlp,attention,mlp,attention,mlp"
        " --no-state-injection --markov-rank 24 --intermediate-size 696",
    ),
    "mamba-only": (
        "hspec",
        f"--block-pattern mamba,mlp,mamba,mlp,mamba,mlp,mamba,mlp {_MAMBA} {_FUSED}"
        " --markov-rank 24 --intermediate-size 540",
    ),
    "no-seed": ("hspec", f"{_HYBRID} {_MAMBA} --no-state-injection --markov-rank 24 --intermediate-size 876"),
    "seed-per-layer": (
        "hspec",
        f"{_HYBRID} {_MAMBA} {_FUSED} --seed-mode per_layer --markov-rank 24 --intermediate-size 168",
    ),
    "seed-once": ("hspec", f"{_HYBRID} {_MAMBA} {_FUSED} --seed-mode once --markov-rank 24 --intermediate-size 512"),
    "no-markov": ("hspec", f"{_HYBRID} {_MAMBA} {_FUSED} --markov-rank 0 --intermediate-size 784"),
}
"""Name of a run to drafter type and its own options."""


def command(name: str, seed: int, paths: argparse.Namespace) -> list[str]:
    """The ``hspec-trt train`` of one run."""
    kind, own = VARIANTS[name]
    folder = paths.output / f"{name}-{seed}"
    options = f"{COMMON} {SIZES[paths.size]} {own} --lr {paths.lr} --optimizer {paths.optimizer} --seed {seed}"
    if paths.steps:
        options += f" --steps {paths.steps}"
    files = ["--target", paths.target, "--data", paths.data, "--output", folder, "--cache", paths.cache]
    arguments = ["train", "--drafter-type", kind, *map(str, files), *options.split()]
    return [sys.executable, "-m", "hspec_trt.cli", *arguments]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--size", choices=SIZES, default="short")
    parser.add_argument("--steps", type=int, help="instead of those of the size")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    paths = parser.parse_args()
    paths.cache = paths.cache or paths.output / "cache"
    paths.output.mkdir(parents=True, exist_ok=True)
    for seed in paths.seeds:
        for name in paths.only:
            print(f"== {name}, seed {seed}", flush=True)
            subprocess.run(command(name, seed, paths), check=True)


if __name__ == "__main__":
    main()
