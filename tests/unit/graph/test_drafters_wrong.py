# SPDX-License-Identifier: Apache-2.0
"""One wrong thing at a time takes an engine away from the golden numbers, which the right one meets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hspec_trt.config.build import BuildConfig
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.rope import RopeConfig
from tests.support.golden_drafters import Array, ArrayTensor, GoldenCase, load_case, pair_of
from tests.support.graph_engine import Engine, Feed, Pair, Row, write_engine
from tests.support.tolerance import GOLDEN_ABSOLUTE, largest_difference

NUM_DRAFTS = 4
golden = cache(load_case)


@dataclass(frozen=True)
class Trial:
    """An engine to be made, and the golden slot that its first draft is compared with."""

    pair: Pair
    build: BuildConfig
    first_slot: int

    @property
    def drafter(self) -> DrafterConfig:
        assert self.pair.drafter is not None
        return self.pair.drafter


Change = Callable[[Trial], Trial]


def right(trial: Trial) -> Trial:
    return trial


def config(**changes: object) -> Change:
    return lambda trial: with_pair(trial, drafter=replace(trial.drafter, **changes))  # type: ignore[arg-type]


def with_pair(trial: Trial, **changes: object) -> Trial:
    return replace(trial, pair=replace(trial.pair, **changes))  # type: ignore[arg-type]


def tensor(name: str, change: Callable[[dict[str, Array]], Array]) -> Change:
    def apply(trial: Trial) -> Trial:
        tensors = trial.pair.drafter_tensors
        assert tensors is not None
        arrays = {key: np.array(source.read()) for key, source in tensors.items()}
        changed = ArrayTensor(name, np.ascontiguousarray(change(arrays)))
        return with_pair(trial, drafter_tensors={**tensors, name: changed})

    return apply


def training_window(trial: Trial) -> Trial:
    return replace(trial, build=replace(trial.build, draft_window="training"))


def drafts_from_the_anchor(trial: Trial) -> Trial:
    """As an engine would be off that reads slots 0 .. G - 1: H-Spec's configuration has no word for that."""
    return replace(trial, first_slot=trial.first_slot - 1)


def absolute_ids(arrays: dict[str, Array]) -> Array:
    """Offsets under which the stored d2t itself is the target id."""
    return arrays["d2t"] - np.arange(len(arrays["d2t"]))


def indexed_by_draft_id(arrays: dict[str, Array]) -> Array:
    """W1 as read by one who looks up draft ids: the row of a target id holds the row of its draft id."""
    table = arrays["markov_head.markov_w1.weight"].copy()
    draft = np.arange(len(arrays["d2t"]))
    table[draft + arrays["d2t"]] = arrays["markov_head.markov_w1.weight"][draft]
    return table


def rows_of(order: str) -> Callable[[dict[str, Array]], Array]:
    """The first seed projection with its rows [heads, channels, state] in another order."""
    axes = ["hpn".index(axis) for axis in order]

    def reorder(arrays: dict[str, Array]) -> Array:
        rows = arrays["seed_projs.0.weight"]
        return rows.reshape(6, 16, 4, -1).transpose(*axes, 3).reshape(rows.shape)

    return reorder


WRONG: dict[str, tuple[str, Change]] = {
    "dflash: layer ids off by one": ("dflash_qwen3", config(fused_layers=(1, 2, 3))),
    "dflash: layer ids in another order": ("dflash_qwen3", config(fused_layers=(4, 3, 2))),
    "dflash: mask token": ("dflash_qwen3", config(mask_token_id=0)),
    "dflash: window wider by one": ("dflash_qwen3", config(windows=(13, 13, 13))),
    "dflash: window off": ("dflash_qwen3", config(windows=(0, 0, 0))),
    "dflash: edge of the window": ("dflash_qwen3", training_window),
    "dflash: block bidirectional": ("dflash_qwen3", config(causal=(False, False, False))),
    "dflash: block causal": ("dflash_llama_full", config(causal=(True, True))),
    "dflash: rope scaling lost": ("dflash_llama_full", config(rope=RopeConfig(theta=500000.0))),
    "dflash: slot layout": ("dflash_qwen3", config(sample_from_anchor=True)),
    "dflash: d2t as absolute ids": ("dflash_qwen3", tensor("d2t", absolute_ids)),
    "dspark: slot layout": ("dspark_qwen3", config(sample_from_anchor=False, num_drafts=7)),
    "dspark: in-fill slot layout": ("dspark_infill_gated", config(sample_from_anchor=True)),
    "dspark: layer ids off by one": ("dspark_qwen3", config(fused_layers=(1, 2, 4))),
    "dspark: mask token": ("dspark_qwen3", config(mask_token_id=0)),
    "dspark: window wider by one": ("dspark_qwen3", config(windows=(13, 13))),
    "dspark: edge of the window": ("dspark_qwen3", training_window),
    "dspark: rope scaling lost": ("dspark_llama_rnn", config(rope=RopeConfig(theta=500000.0))),
    "dspark: d2t as absolute ids": ("dspark_qwen3", tensor("d2t", absolute_ids)),
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
    "peagle: d2t as absolute ids": ("peagle_qwen3", tensor("d2t", absolute_ids)),
    "peagle: rope scaling lost": ("peagle_llama", config(rope=RopeConfig(theta=500000.0))),
    "peagle: target's embedding": (
        "peagle_qwen3",
        lambda trial: tensor(
            "embed_tokens.weight", lambda _: trial.pair.target_tensors["model.embed_tokens.weight"].read()
        )(trial),
    ),
    "eagle3: residual rule": ("eagle3_qwen3", config(norm_before_residual=False)),
    "eagle3: feeds back before the norm": ("eagle3_qwen3", config(norm_output=False)),
    "eagle3: feeds back after the norm": ("eagle3_llama", config(norm_output=True)),
    "eagle3: d2t as absolute ids": ("eagle3_qwen3", tensor("d2t", absolute_ids)),
    "eagle3: window": ("eagle3_qwen3", config(windows=(6,))),
    "eagle3: rope scaling lost": ("eagle3_llama", config(rope=RopeConfig(theta=500000.0))),
    "eagle3: layer ids off by one": ("eagle3_llama", config(fused_layers=(2, 3, 5))),
    "hspec: layers of K and V off by one": ("hspec_qwen3", config(attn_kv_layers=(1, 2, 4))),
    "hspec: layers of K and V in another order": ("hspec_fullattn", config(attn_kv_layers=(1, 3, 3))),
    "hspec: fused layers off by one": ("hspec_qwen3", config(fused_layers=(0, 2, 4))),
    "hspec: fused layers in another order": ("hspec_llama", config(fused_layers=(5, 4, 3, 2, 1))),
    "hspec: K and V of the fused layers": ("hspec_qwen3", config(attn_kv_layers=(1, 3, 5))),
    "hspec: one seed for all, only the first seeded": ("hspec_qwen3", config(seed_mode="once")),
    "hspec: seed per layer, one for all": ("hspec_llama", config(seed_mode="shared")),
    "hspec: only the first seeded, one for all": ("hspec_fullattn", config(seed_mode="shared")),
    "hspec: no seed": ("hspec_qwen3", config(state_injection=False)),
    "hspec: seed state before channels": ("hspec_qwen3", tensor("seed_projs.0.weight", rows_of("hnp"))),
    "hspec: seed channels before heads": ("hspec_qwen3", tensor("seed_projs.0.weight", rows_of("phn"))),
    "hspec: no context": ("hspec_qwen3", config(target_kv_reuse=False)),
    "hspec: context although trained without": ("hspec_nokv", config(target_kv_reuse=True)),
    "hspec: window wider by one": ("hspec_qwen3", config(attn_windows=(13, 13, 13))),
    "hspec: window narrower by one": ("hspec_noseed", config(attn_windows=(11, 11, 11))),
    "hspec: one window wider by one": ("hspec_qwen3", config(attn_windows=(12, 12, 13))),
    "hspec: window off": ("hspec_qwen3", config(attn_windows=(2048, 2048, 2048))),
    "hspec: edge of the window": ("hspec_qwen3", training_window),
    "hspec: block bidirectional": ("hspec_llama", config(attn_windows=(0, 0, 0))),
    "hspec: block causal": ("hspec_fullattn", config(attn_windows=(2048, 2048, 2048))),
    "hspec: q and k not normed": ("hspec_qwen3", config(use_qk_norm=False)),
    "hspec: fused states not normed": ("hspec_fullattn", config(fc_norm=False)),
    "hspec: rope scaling lost": ("hspec_llama", config(rope=RopeConfig(theta=500000.0))),
    "hspec: mask token": ("hspec_qwen3", config(mask_token_id=0)),
    "hspec: slot layout": ("hspec_qwen3", drafts_from_the_anchor),
    "hspec: d2t as absolute ids": ("hspec_qwen3", tensor("d2t", absolute_ids)),
    "hspec: no correction": ("hspec_qwen3", config(markov_rank=0)),
    "hspec: W1 indexed by draft id": ("hspec_qwen3", tensor("markov_head.markov_w1.weight", indexed_by_draft_id)),
    "hspec: tables swapped": (
        "hspec_llama",
        tensor("markov_head.markov_w1.weight", lambda arrays: arrays["markov_head.markov_w2.weight"]),
    ),
}


RIGHT = sorted({name for name, _ in WRONG.values()})


def meets_golden(case: GoldenCase, change: Change, folder: Path) -> bool:
    """Whether an engine gives the golden drafts and logits for every prompt."""
    pair = pair_of(case)
    assert pair.drafter is not None
    first_slot = getattr(pair.drafter, "first_slot", 1 if case.name.startswith("hspec") else 0)
    build = BuildConfig(page_size=16, num_drafts=NUM_DRAFTS)
    trial = change(Trial(pair, build, first_slot))
    engine = Engine(write_engine(folder, trial.pair, trial.build, probes=True), trial.pair, trial.build, num_pages=8)
    probe = next(name for name in engine.outputs if name in ("probe.drafter.logits", "probe.drafter.logits_final"))
    quantity = "logits_final" if f"{case.prompts()[0]}.logits_final" in case.vectors else "logits"
    for prompt in case.prompts():
        tokens = [int(token) for token in case.get(prompt, "prompt_ids")]
        out = engine.step([Row(tokens, pages=[1, 2, 3])], [Feed(tokens, num_verify=1, draft=True)])
        logits = case.get(prompt, quantity)[trial.first_slot :][:NUM_DRAFTS]
        drafts = case.get(prompt, "draft_tokens")[:NUM_DRAFTS].tolist()
        if largest_difference(out[probe][0], logits) > GOLDEN_ABSOLUTE:
            return False
        if out["draft_ids"][0].tolist() != drafts:
            return False
    return True


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_engine_meets_the_golden_numbers(name: str, tmp_path: Path) -> None:
    assert meets_golden(golden(name), right, tmp_path)


@pytest.mark.parametrize("what", WRONG)
def test_one_wrong_thing_misses_the_golden_numbers(what: str, tmp_path: Path) -> None:
    name, change = WRONG[what]
    assert not meets_golden(golden(name), change, tmp_path)
