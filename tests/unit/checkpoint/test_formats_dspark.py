# SPDX-License-Identifier: Apache-2.0
"""DSpark checkpoints: heads and slot layout, in the speculators format and DeepSpec's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hspec_trt.checkpoint.formats import dspark
from hspec_trt.config.drafters_block import DSparkConfig
from tests.support.golden_drafters import GoldenCase, load_case
from tests.unit.checkpoint.drafter_formats import changed, codes, read, with_arrays


@pytest.fixture(scope="module")
def case() -> GoldenCase:
    return load_case("dspark_qwen3")


@pytest.fixture(scope="module")
def full() -> GoldenCase:
    return load_case("dspark_infill_gated")


def deepspec(full: GoldenCase, **extra: object) -> GoldenCase:
    """A full-vocabulary drafter as DeepSpec saves it."""
    layer = dict(full.config_json["transformer_layer_config"])  # type: ignore[call-overload]
    heads = {key: full.config_json[key] for key in ("markov_rank", "markov_head_type", "enable_confidence_head")}
    config = {
        **layer,
        **heads,
        "confidence_head_with_markov": False,
        "architectures": ["Qwen3DSparkModel"],
        "block_size": 7,
        "mask_token_id": 255,
        "target_layer_ids": [0, 1, 2],
        "num_anchors": 512,
        "num_target_layers": full.target.num_layers,
        **extra,
    }
    return replace(full, config_json=config)


@pytest.mark.parametrize(
    ("name", "kind", "rank", "with_markov", "from_anchor", "drafts"),
    [
        ("dspark_qwen3", "vanilla", 8, True, True, 8),
        ("dspark_infill_gated", "gated", 8, False, False, 7),
        ("dspark_llama_rnn", "rnn", 6, True, True, 7),
    ],
)
def test_speculators_configuration(
    name: str, kind: str, rank: int, with_markov: bool, from_anchor: bool, drafts: int
) -> None:
    case = load_case(name)
    layout = read(case, dspark.read_speculators)
    config = layout.config
    assert isinstance(config, DSparkConfig)
    assert (config.markov_type, config.markov_rank) == (kind, rank)
    assert (config.confidence_head, config.confidence_with_markov) == (True, with_markov)
    assert (config.sample_from_anchor, config.num_drafts, config.first_slot) == (from_anchor, drafts, 1 - from_anchor)
    assert set(layout.tensors) == set(case.arrays)


def test_deepspec_counts_outputs_and_drafts_from_the_anchor(full: GoldenCase) -> None:
    config = read(deepspec(full), dspark.read_original).config
    assert isinstance(config, DSparkConfig)
    assert config.fused_layers == (1, 2, 3)
    assert (config.block_size, config.num_drafts, config.sample_from_anchor) == (7, 7, True)
    assert config.markov_type == "gated"


def test_nested_keys_are_found(full: GoldenCase) -> None:
    nested = {"target_layer_ids": [0, 1, 2], "mask_token_id": 255, "block_size": 7}
    flat = deepspec(full, dflash_config=nested)
    for key in ("target_layer_ids", "mask_token_id", "block_size"):
        flat = changed(flat, drop=key)
    config = read(flat, dspark.read_original).config
    assert (config.fused_layers, config.mask_token_id, config.block_size) == ((1, 2, 3), 255, 7)


def test_unknown_keys_of_the_original_layout_are_reported(full: GoldenCase) -> None:
    assert not any("D002" in line for line in read(deepspec(full), dspark.read_original).warnings)
    heads = {"markov_rank": 8, "markov_head_type": "gated", "confidence_head_with_markov": False, "warp_drive": 2}
    warnings = read(deepspec(full, hyper_drive=1, dspark_config=heads), dspark.read_original).warnings
    assert "warning[D002] config.json: unknown keys, not used: hyper_drive" in warnings
    assert "warning[D002] config.json: dspark_config: unknown keys, not used: warp_drive" in warnings


ONE_WRONG = {
    "head type missing": ({"drop": "markov_head_type"}, "D133"),
    "head type unknown": ({"markov_head_type": "bigram"}, "D133"),
    "head of another type": ({"markov_head_type": "gated"}, "C020"),
    "rank missing": ({"drop": "markov_rank"}, "C033"),
    "rank wrong": ({"markov_rank": 9}, "C022"),
    "rank 0 with a head that reads it": ({"markov_rank": 0}, "D133"),
    "confidence input wrong": ({"confidence_head_with_markov": False}, "C022"),
    "confidence head unused": ({"enable_confidence_head": False}, "C020"),
    "layout shifted by one": ({"sample_from_anchor": False}, "D125"),
    "mask missing": ({"drop": "mask_token_id"}, "D120"),
    "ids off the end": ({"aux_hidden_state_layer_ids": [2, 3, 9]}, "D101"),
}


@pytest.mark.parametrize("name", ONE_WRONG)
def test_one_wrong_key_is_refused(case: GoldenCase, name: str) -> None:
    change, code = ONE_WRONG[name]
    assert code in codes(changed(case, **change), dspark.read_speculators)  # type: ignore[arg-type]


def test_markov_tables_must_not_be_swapped(case: GoldenCase) -> None:
    """w1 is indexed by target id, w2 gives draft-vocabulary logits: a swap has wrong shapes in a reduced one."""
    w1, w2 = (case.arrays[f"markov_head.markov_{which}.weight"] for which in ("w1", "w2"))
    swapped = with_arrays(case, markov_head__markov_w1__weight=w2, markov_head__markov_w2__weight=w1)
    assert codes(swapped, dspark.read_speculators) == {"C022"}


def test_dspark_without_heads_is_a_contradiction(case: GoldenCase) -> None:
    bare = {name: None for name in case.arrays if name.startswith("markov_head")}
    bare = {name.replace(".", "__"): None for name in bare}
    assert "D001" in codes(with_arrays(case, **bare), dspark.read_speculators)


def test_confidence_input_follows_from_the_width(full: GoldenCase) -> None:
    config = read(changed(full, drop="confidence_head_with_markov"), dspark.read_speculators).config
    assert config.confidence_with_markov is False  # type: ignore[attr-defined]


def test_tensors_of_another_rank_are_refused(case: GoldenCase) -> None:
    assert "C022" in codes(
        with_arrays(case, markov_head__markov_w2__weight=np.zeros((96, 7), np.float32)), dspark.read_speculators
    )
