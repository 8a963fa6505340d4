# SPDX-License-Identifier: Apache-2.0
"""Accepted lengths on held-out text of the drafters that ``benchmarks.drafter_comparison`` trained, with intervals.

Run it as ``python -m benchmarks.drafter_table --target FILE --data FILE --runs FOLDER``. Every drafter is run over the
same conversations, those that its training held out. The intervals are 95 %, by drawing conversations anew; the last
column is the difference to the drafter ``hspec`` of the same seed on the same draws, which leaves out what all have in
common.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.checkpoint.target import TargetCheckpoint, load_target
from hspec_trt.intervals import Samples, bootstrap, total_ratio
from hspec_trt.modeling.load import drafter_model
from hspec_trt.training.cache import CacheKey, TeacherCache
from hspec_trt.training.evaluate import Acceptance, evaluate
from hspec_trt.training.options import TrainOptions
from hspec_trt.training.run import STATE, read_text, split_text

SHOWN_POSITIONS = 3


def held_out_cache(paths: argparse.Namespace, target: TargetCheckpoint, run: Path) -> tuple[TeacherCache, list[int]]:
    """The teacher cache of a run, and the conversations that it held out."""
    recipe = json.loads(torch.load(run / STATE, weights_only=True)["recipe"])["options"]
    names = ("max_tokens", "data_seed", "max_conversations", "held_out")
    options = TrainOptions(**{name: recipe[name] for name in names})
    text = read_text(paths.data, options, target.config.vocab_size)[: options.max_conversations]
    folder = paths.cache or paths.runs / "cache"
    key = json.loads((folder / "cache.json").read_text())
    key |= {name: tuple(key[name]) for name in ("hidden_layers", "kv_layers")}
    return TeacherCache(folder, CacheKey(**key), text), split_text(options, text)[1]


def difference(one: Acceptance, other: Acceptance) -> str:
    """Accepted length of `one` less that of `other`, with an interval over conversations."""
    counts = np.concatenate([one.conversations, other.conversations], 1).astype(np.float64)

    def less(drawn: Samples) -> Samples:
        return total_ratio(drawn[..., :2]) - total_ratio(drawn[..., 2:])

    found = bootstrap(less, counts)
    return f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    paths = parser.parse_args()
    torch.set_num_threads(paths.threads)
    target = load_target(paths.target)
    works = sorted(paths.runs.glob("*-work"), key=lambda work: (not work.name.startswith("hspec-"), work.name))
    leaders: dict[str, Acceptance] = {}
    print("| drafter | seed | accepted length | accepted at position 1, 2, 3 | less hspec of that seed |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for work in works:
        name, seed = work.name.removesuffix("-work").rsplit("-", 1)
        cache, held_out = held_out_cache(paths, target, work)
        drafter = load_drafter(work.with_name(f"{name}-{seed}"), target)
        found = evaluate(drafter_model(drafter, target).eval(), cache, held_out)
        leaders.setdefault(seed, found)
        length, shares = found.length, " ".join(f"{share:.3f}" for share in found.per_position[:SHOWN_POSITIONS])
        beside = "" if name == "hspec" else difference(found, leaders[seed])
        interval = f"{length.value:.3f} ({length.low:.3f} to {length.high:.3f})"
        print(f"| {name} | {seed} | {interval} | {shares} | {beside} |", flush=True)


if __name__ == "__main__":
    main()
