# SPDX-License-Identifier: Apache-2.0
"""One wrong thing at a time moves the golden numbers: what the golden tests would catch, shown to be caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hspec_trt.config.build import BuildConfig
from hspec_trt.config.rope import RopeConfig
from tests.support.golden_drafters import ArrayTensor, GoldenCase, load_case, pair_of
from tests.support.graph_engine import Engine, Feed, Pair, Row, write_engine
from tests.support.tolerance import GOLDEN_ABSOLUTE, largest_difference

Change = Callable[[Pair], Pair]


def config(**changes: object) -> Change:
    return lambda pair: replace(pair, drafter=replace(pair.drafter, **changes))  # type: ignore[type-var, arg-type]


def tensor(name: str, change: Callable[[dict[str, np.ndarray]], np.ndarray]) -> Change:
    def apply(pair: Pair) -> Pair:
        arrays = {key: np.array(source.read()) for key, source in pair.drafter_tensors.items()}  # type: ignore[union-attr]
        changed = ArrayTensor(name, np.ascontiguousarray(change(arrays)))
        return replace(pair, drafter_tensors={**pair.drafter_tensors, name: changed})  # type: ignore[dict-item]

    return apply


def absolute_ids(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Offsets under which the stored d2t itself is the target id."""
    return arrays["d2t"] - np.arange(len(arrays["d2t"]))


def indexed_by_draft_id(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """W1 as read by one who looks up draft ids: the row of a target id holds the row of its draft id."""
    table = arrays["markov_head.markov_w1.weight"].copy()
    draft = np.arange(len(arrays["d2t"]))
    table[draft + arrays["d2t"]] = arrays["markov_head.markov_w1.weight"][draft]
    return table


WRONG: dict[str, tuple[str, Change]] = {
    "dflash: layer ids off by one": ("dflash_qwen3", config(fused_layers=(1, 2, 3))),
    "dflash: layer ids in another order": ("dflash_qwen3", config(fused_layers=(4, 3, 2))),
    "dflash: mask token": ("dflash_qwen3", config(mask_token_id=0)),
    "dflash: window wider by one": ("dflash_qwen3", config(windows=(13, 13, 13))),
    "dflash: window off": ("dflash_qwen3", config(windows=(0, 0, 0))),
    "dflash: block bidirectional": ("dflash_qwen3", config(causal=(False, False, False))),
    "dflash: block causal": ("dflash_llama_full", config(causal=(True, True))),
    "dflash: rope scaling lost": ("dflash_llama_full", config(rope=RopeConfig(theta=500000.0))),
    "dflash: slot layout": ("dflash_qwen3", config(sample_from_anchor=True)),
    "dflash: d2t as absolute ids": ("dflash_qwen3", tensor("d2t", absolute_ids)),
    "dspark: slot layout": ("dspark_qwen3", config(sample_from_anchor=False, num_drafts=7)),
    "dspark: in-fill slot layout": ("dspark_infill_gated", config(sample_from_anchor=True)),
    "dspark: layer ids off by one": ("dspark_qwen3", config(fused_layers=(1, 2, 4))),
    "dspark: gate left out": ("dspark_infill_gated", config(markov_type="vanilla")),
    "dspark: recurrence left out": ("dspark_llama_rnn", config(markov_type="vanilla")),
    "dspark: no correction": ("dspark_qwen3", config(markov_rank=0)),
    "dspark: W1 indexed by draft id": ("dspark_qwen3", tensor("markov_head.markov_w1.weight", indexed_by_draft_id)),
    "dspark: tables swapped": (
        "dspark_infill_gated",
        tensor("markov_head.markov_w1.weight", lambda arrays: arrays["markov_head.markov_w2.weight"]),
    ),
    "peagle: mask token": ("peagle_qwen3", config(mask_token_id=0)),
    "peagle: window narrower by one": ("peagle_qwen3", config(windows=(11, 11, 11))),
    "peagle: residual rule": ("peagle_qwen3", config(norm_before_residual=True)),
    "peagle: layer ids off by one": ("peagle_llama", config(fused_layers=(0, 1, 3))),
    "peagle: rope scaling lost": ("peagle_llama", config(rope=RopeConfig(theta=500000.0))),
    "peagle: target's embedding": (
        "peagle_qwen3",
        lambda pair: tensor("embed_tokens.weight", lambda _: pair.target_tensors["model.embed_tokens.weight"].read())(
            pair
        ),
    ),
    "eagle3: residual rule": ("eagle3_qwen3", config(norm_before_residual=False)),
    "eagle3: feeds back before the norm": ("eagle3_qwen3", config(norm_output=False)),
    "eagle3: feeds back after the norm": ("eagle3_llama", config(norm_output=True)),
    "eagle3: d2t as absolute ids": ("eagle3_qwen3", tensor("d2t", absolute_ids)),
    "eagle3: layer ids off by one": ("eagle3_llama", config(fused_layers=(2, 3, 5))),
}


def run(pair: Pair, case: GoldenCase, folder: Path) -> list[tuple[list[int], np.ndarray]]:
    """Drafts and last logits of each prompt."""
    build = BuildConfig(page_size=16, num_drafts=min(4, pair.drafter.num_drafts))  # type: ignore[union-attr]
    engine = Engine(write_engine(folder, pair, build, probes=True), pair, build, num_pages=8)
    name = "probe.drafter.logits" if "probe.drafter.logits" in engine.outputs else "probe.drafter.logits_final"
    results = []
    for prompt in case.prompts():
        tokens = [int(token) for token in case.get(prompt, "prompt_ids")]
        out = engine.step([Row(tokens, pages=[1, 2, 3])], [Feed(tokens, num_verify=1, draft=True)])
        results.append((out["draft_ids"][0].tolist(), out[name]))
    return results


@pytest.mark.parametrize("what", WRONG)
def test_one_wrong_thing_moves_the_golden_numbers(what: str, tmp_path: Path) -> None:
    name, change = WRONG[what]
    case = load_case(name)
    right = run(pair_of(case), case, tmp_path / "right")
    wrong = run(change(pair_of(case)), case, tmp_path / "wrong")
    moved = [
        drafts != other_drafts or largest_difference(logits, other_logits) > 10 * GOLDEN_ABSOLUTE
        for (drafts, logits), (other_drafts, other_logits) in zip(right, wrong, strict=True)
    ]
    assert any(moved)
