# SPDX-License-Identifier: Apache-2.0
"""Which tensors an engine stores, in which type, and what a drafter shares with its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from hspec_trt.checkpoint.tensors import TensorSource
from hspec_trt.config.target import TargetConfig
from hspec_trt.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, DType
from hspec_trt.errors import BuildError
from hspec_trt.graph.weights import EngineWeight, engine_weights
from tests.support.golden_drafters import load_case, pair_of
from tests.support.golden_pair import hspec_pair
from tests.support.graph_engine import ArraySource, Pair

REDUCED, FULL = "hspec_qwen3", "hspec_llama"


def stored(pair: Pair, dtype: DType = FLOAT32) -> dict[str, EngineWeight]:
    weights = engine_weights(pair.target_tensors, pair.drafter_tensors, pair.target, pair.drafter, dtype)
    assert len({weight.name for weight in weights}) == len(weights)
    return {weight.name: weight for weight in weights}


def drafter_with(pair: Pair, **tensors: np.ndarray | None) -> Pair:
    """The pair with drafter tensors set or (None) removed; double underscores stand for dots."""
    changed: dict[str, TensorSource] = dict(pair.drafter_tensors or {})
    for key, values in tensors.items():
        name = key.replace("__", ".")
        if values is None:
            changed.pop(name, None)
        else:
            changed[name] = ArraySource(values)
    return replace(pair, drafter_tensors=changed)


def target_values(pair: Pair, name: str) -> np.ndarray:
    return np.array(pair.target_tensors[name].read())


def test_every_weight_makes_what_it_announces() -> None:
    for case in (REDUCED, FULL):
        for dtype in (FLOAT32, FLOAT16, BFLOAT16):
            for weight in stored(hspec_pair(case), dtype).values():
                values = weight.produce()
                assert (values.dtype, values.shape) == (weight.dtype.numpy, weight.shape), weight.name


def test_target_weights_are_those_of_the_checkpoint() -> None:
    pair = hspec_pair(REDUCED)
    weights = stored(pair.without_drafter())
    assert set(weights) == {f"target.{name}" for name in pair.target_tensors} | {"target.token_ids"}
    for name in pair.target_tensors:
        assert (weights[f"target.{name}"].produce() == target_values(pair, name)).all()
    assert weights["target.token_ids"].produce().tolist() == list(range(256))


def test_token_ids_fill_whole_vectors() -> None:
    pair = hspec_pair(REDUCED).without_drafter()
    odd: TargetConfig = replace(pair.target, vocab_size=249)
    ids = stored(replace(pair, target=odd))["target.token_ids"].produce()
    assert ids.tolist() == [*range(249), *[248] * 7]


def test_scan_parameters_stay_float32() -> None:
    weights = stored(hspec_pair(REDUCED), BFLOAT16)
    kept = {name for name, weight in weights.items() if weight.dtype is FLOAT32}
    assert kept == {
        f"drafter.layers.{layer}.ssm.{name}"
        for layer in (0, 2, 5, 8)
        for name in ("A_log", "D", "dt_bias", "norm.weight")
    }
    assert {weight.dtype for name, weight in weights.items() if name not in kept} == {BFLOAT16, INT32}


def test_fused_projection_is_float32_in_a_float16_engine_only() -> None:
    pair = hspec_pair(REDUCED)
    assert stored(pair, FLOAT16)["drafter.fc.weight"].dtype is FLOAT32
    assert stored(pair, BFLOAT16)["drafter.fc.weight"].dtype is BFLOAT16


def test_what_serving_does_not_use_is_not_stored() -> None:
    names = set(stored(hspec_pair(REDUCED)))
    assert not {name for name in names if "confidence" in name or name.endswith(("d2t", "t2d"))}


def test_reduced_vocabulary_becomes_target_ids() -> None:
    pair = hspec_pair(REDUCED)
    weights = stored(pair)
    offsets = pair.drafter_tensors["d2t"].read()
    ids = weights["drafter.token_ids"].produce()
    assert ids.tolist() == [draft + int(offset) for draft, offset in enumerate(offsets)]
    assert np.flatnonzero(pair.drafter_tensors["t2d"].read()).tolist() == ids.tolist()


def test_head_rows_come_from_the_target_where_the_drafter_has_none() -> None:
    pair = drafter_with(hspec_pair(REDUCED), lm_head__weight=None)
    weights = stored(pair)
    head = target_values(pair, "lm_head.weight")
    assert (weights["drafter.lm_head.weight"].produce() == head[weights["drafter.token_ids"].produce()]).all()


def test_a_head_of_its_own_is_kept() -> None:
    own = np.random.default_rng(0).normal(size=(96, 64)).astype(np.float32)
    weights = stored(drafter_with(hspec_pair(REDUCED), lm_head__weight=own))
    assert (weights["drafter.lm_head.weight"].produce() == own).all()


@pytest.mark.parametrize("present", [True, False])
def test_the_target_head_is_stored_once(present: bool) -> None:
    pair = hspec_pair(FULL)
    assert "lm_head.weight" not in pair.target_tensors, "tied: the head is the embedding"
    head = target_values(pair, "model.embed_tokens.weight")
    weights = stored(drafter_with(pair, lm_head__weight=head if present else None))
    assert "drafter.lm_head.weight" not in weights
    assert "drafter.token_ids" not in weights
    head[200, 3] += 1.0
    assert "drafter.lm_head.weight" in stored(drafter_with(pair, lm_head__weight=head))


def test_embeddings_are_stored_as_far_as_they_differ() -> None:
    pair = hspec_pair(FULL)
    table, mask = target_values(pair, "model.embed_tokens.weight"), pair.drafter.mask_token_id

    def names(embedding: np.ndarray | None) -> Mapping[str, EngineWeight]:
        weights = stored(drafter_with(pair, embed_tokens__weight=embedding))
        return {name: weight for name, weight in weights.items() if name in OWN_TABLES}

    assert not names(None)
    assert not names(table)
    changed = table.copy()
    changed[mask] = 3.0
    (mask_row,) = names(changed).values()
    assert mask_row.name == "drafter.mask_row"
    assert (mask_row.produce() == 3.0).all()
    changed[5, 0] += 1.0
    (whole,) = names(changed).values()
    assert whole.name == "drafter.embed_tokens.weight"
    assert (whole.produce() == changed).all()
    assert set(names(np.concatenate([table, table[:3]]))) == {"drafter.embed_tokens.weight"}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_mask_vector_beside_a_dead_mask_row(elsewhere: bool) -> None:
    """Case B8: the vector is for the mask slots, the row for an anchor that is the mask token."""
    pair = pair_of(load_case("dflash_qwen3"))
    table, vector = target_values(pair, "model.embed_tokens.weight"), np.full(48, 3.0, np.float32)
    table[pair.drafter.mask_token_id] = 0.0
    if elsewhere:
        table[5, 0] += 1.0
    weights = stored(drafter_with(pair, embed_tokens__weight=table, mask_embedding=vector))
    assert (weights["drafter.mask_embedding"].produce() == vector).all()
    (own,) = (weights[name] for name in OWN_TABLES if name in weights)
    assert own.name == OWN_TABLES[elsewhere]
    assert (own.produce() == (table if elsewhere else 0.0)).all()


OWN_TABLES = ("drafter.mask_row", "drafter.embed_tokens.weight")


def test_tables_are_compared_in_the_type_of_the_engine() -> None:
    pair = hspec_pair(FULL)
    rounded = target_values(pair, "model.embed_tokens.weight").astype(ml_dtypes.bfloat16)
    pair = drafter_with(pair, embed_tokens__weight=rounded, lm_head__weight=rounded)
    assert {"drafter.embed_tokens.weight", "drafter.lm_head.weight"} <= set(stored(pair, FLOAT32))
    assert not {"drafter.embed_tokens.weight", "drafter.lm_head.weight"} & set(stored(pair, BFLOAT16))


def test_values_that_float16_cannot_hold_are_refused() -> None:
    pair = hspec_pair(FULL)
    wide = {**pair.target_tensors, "model.norm.weight": ArraySource(np.array([1.0, 7e4] * 32, np.float32))}
    pair = replace(pair, target_tensors=wide)
    with pytest.raises(BuildError) as raised:
        stored(pair, FLOAT16)["target.model.norm.weight"].produce()
    assert raised.value.code == "B032"
    assert "target.model.norm.weight" in str(raised.value)
    assert stored(pair, BFLOAT16)["target.model.norm.weight"].produce()[1] > 6e4
