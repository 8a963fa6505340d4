# SPDX-License-Identifier: Apache-2.0
"""DFlash checkpoints: three dialects give one configuration, and one wrong thing at a time is refused by its code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hspec_trt.checkpoint.formats import dflash
from hspec_trt.config.drafters_block import DFlashConfig
from tests.support.golden_drafters import GoldenCase, load_case
from tests.unit.checkpoint.drafter_formats import changed, codes, message, read, with_arrays


@pytest.fixture(scope="module")
def case() -> GoldenCase:
    return load_case("dflash_qwen3")


def original(case: GoldenCase, **extra: object) -> GoldenCase:
    """The same drafter as z-lab would publish it: flat config, ids one lower, target's tables (full vocabulary)."""
    layer = dict(case.config_json["transformer_layer_config"])  # type: ignore[call-overload]
    config = {
        **layer,
        "architectures": ["DFlashDraftModel"],
        "num_target_layers": case.target.num_layers,
        "block_size": 8,
        "dflash_config": {"target_layer_ids": [1, 2, 3], "mask_token_id": 255},
        **extra,
    }
    kept = {name: array for name, array in case.arrays.items() if name not in ("d2t", "t2d")}
    kept |= {"lm_head.weight": np.zeros((256, 48), np.float32)}
    return replace(case, config_json=config, arrays=kept)


def deepspec(case: GoldenCase, **extra: object) -> GoldenCase:
    flat = original(case, **{"target_layer_ids": [1, 2, 3], "mask_token_id": 255, "num_anchors": 512, **extra})
    return changed(flat, drop="dflash_config")


def test_speculators_configuration(case: GoldenCase) -> None:
    layout = read(case, dflash.read_speculators)
    config = layout.config
    assert isinstance(config, DFlashConfig)
    assert config.fused_layers == (2, 3, 4)
    assert config.windows == (12, 12, 12)
    assert config.causal == (True, True, True)
    assert (config.block_size, config.num_drafts, config.first_slot) == (8, 7, 1)
    assert (config.vocab_size, config.draft_vocab_size, config.mask_token_id) == (256, 96, 255)
    assert config.num_cache_layers == 3
    assert set(layout.tensors) == set(case.arrays)


def test_three_dialects_mean_the_same_states(case: GoldenCase) -> None:
    """Ids 2, 3, 4 counted as inputs are 1, 2, 3 counted as outputs."""
    fused = [
        read(case, dflash.read_speculators).config.fused_layers,
        read(original(case), dflash.read_original).config.fused_layers,
        read(deepspec(case), dflash.read_original, sample_from_anchor=False).config.fused_layers,
        read(case, dflash.read_speculators, layer_ids=(1, 2, 3), layer_id_base="output").config.fused_layers,
    ]
    assert fused == [(2, 3, 4)] * 4


def test_build_prints_the_layer_table(case: GoldenCase) -> None:
    notes = "\n".join(read(original(case), dflash.read_original).notes)
    assert "id 1 = output of layer 1 = h^(2)" in notes
    assert "drafter lm_head: own (256 rows)" in notes
    notes = "\n".join(read(case, dflash.read_speculators).notes)
    assert "id 2 = input of layer 2 = h^(2)" in notes
    assert "drafter lm_head: own (96 rows) via d2t offsets" in notes
    assert "draft layer 0: window 12, causal inside the block" in notes


def test_order_of_ids_is_kept(case: GoldenCase) -> None:
    swapped = changed(case, aux_hidden_state_layer_ids=[4, 2, 3])
    assert read(swapped, dflash.read_speculators).config.fused_layers == (4, 2, 3)


def test_last_layer_may_be_fused(case: GoldenCase) -> None:
    """The state before the final norm is h^(N)."""
    last = case.target.num_layers
    assert (
        read(changed(case, aux_hidden_state_layer_ids=[1, 2, last]), dflash.read_speculators).config.fused_layers[2]
        == last
    )
    ids = {"target_layer_ids": [0, 1, last - 1], "mask_token_id": 255}
    assert read(original(case, dflash_config=ids), dflash.read_original).config.fused_layers == (1, 2, last)


ONE_WRONG = {
    "ids missing": ({"drop": "aux_hidden_state_layer_ids"}, "D100"),
    "ids empty": ({"aux_hidden_state_layer_ids": []}, "D100"),
    "id past the last layer": ({"aux_hidden_state_layer_ids": [2, 3, 7]}, "D101"),
    "negative id": ({"aux_hidden_state_layer_ids": [-1, 2, 3]}, "D101"),
    "id twice": ({"aux_hidden_state_layer_ids": [2, 2, 3]}, "D103"),
    "one id too many": ({"aux_hidden_state_layer_ids": [1, 2, 3, 4]}, "D102"),
    "ids of another type": ({"aux_hidden_state_layer_ids": ["2"]}, "C031"),
    "mask missing": ({"drop": "mask_token_id"}, "D120"),
    "mask null": ({"mask_token_id": None}, "D120"),
    "mask = vocab": ({"mask_token_id": 256}, "D122"),
    "mask = -1": ({"mask_token_id": -1}, "D122"),
    "block size missing": ({"drop": "block_size"}, "D124"),
    "block size 0": ({"block_size": 0}, "C032"),
    "slots promise too little": ({"block_size": 7}, "D125"),
    "layout flag wrong": ({"sample_from_anchor": False, "block_size": 6}, "D125"),
    "vocabulary of another target": ({"transformer_layer_config__vocab_size": 300}, "D113"),
    "width of another target": ({"target_hidden_size": 64}, "D114"),
    "hidden size of another target": ({"transformer_layer_config__hidden_size": 64}, "D114"),
    "window missing": ({"transformer_layer_config__sliding_window": None}, "D131"),
    "window switched off": ({"transformer_layer_config__use_sliding_window": False}, "D131"),
    "layer types missing": ({"drop": "transformer_layer_config__layer_types"}, "D131"),
    "layer types too short": ({"transformer_layer_config__layer_types": ["full_attention"]}, "D131"),
    "layer type unknown": ({"transformer_layer_config__layer_types": ["chunked"] * 3}, "D131"),
    "model type unknown": ({"transformer_layer_config__model_type": "gemma"}, "D132"),
    "rope of unknown type": ({"transformer_layer_config__rope_parameters": {"rope_type": "longrope"}}, "C040"),
    "draft vocabulary too large": ({"draft_vocab_size": 999}, "D110"),
    "draft vocabulary wrong": ({"draft_vocab_size": 95}, "D112"),
    "heads do not divide": ({"transformer_layer_config__num_key_value_heads": 3}, "C030"),
    "head size missing": ({"drop": "transformer_layer_config__head_dim"}, "C033"),
}


@pytest.mark.parametrize("name", ONE_WRONG)
def test_one_wrong_key_is_refused(case: GoldenCase, name: str) -> None:
    change, code = ONE_WRONG[name]
    assert code in codes(changed(case, **change), dflash.read_speculators)  # type: ignore[arg-type]


WRONG_TENSORS: dict[str, tuple[dict[str, np.ndarray | None], str]] = {
    "no d2t": ({"d2t": None}, "D110"),
    "d2t all zero": ({"d2t": np.zeros(96, np.int64)}, "D112"),
    "d2t counts up": ({"d2t": np.arange(96)}, "D112"),
    "d2t out of range": ({"d2t": np.full(96, 200)}, "D112"),
    "d2t of floats": ({"d2t": np.zeros(96, np.float32)}, "D112"),
    "d2t too short": ({"d2t": np.zeros(95, np.int64)}, "D112"),
    "t2d disagrees": ({"t2d": np.arange(256) < 96}, "D112"),
    "head of integers": ({"lm_head__weight": np.zeros((96, 48), np.int32)}, "C025"),
    "fc too wide": ({"fc__weight": np.zeros((48, 192), np.float32)}, "D102"),
    "fc missing": ({"fc__weight": None}, "C020"),
    "layer missing": ({"layers__1__mlp__up_proj__weight": None}, "C020"),
    "tensor without a use": ({"layers__9__mlp__up_proj__weight": np.zeros((96, 48), np.float32)}, "C020"),
    "wrong shape": ({"norm__weight": np.zeros(47, np.float32)}, "C022"),
    "Markov head": ({"markov_head__markov_w1__weight": np.zeros((256, 8), np.float32)}, "D001"),
}


@pytest.mark.parametrize("name", WRONG_TENSORS)
def test_one_wrong_tensor_is_refused(case: GoldenCase, name: str) -> None:
    arrays, code = WRONG_TENSORS[name]
    assert code in codes(with_arrays(case, **arrays), dflash.read_speculators)


def test_absolute_ids_in_d2t_are_recognised(case: GoldenCase) -> None:
    """d2t as absolute ids would map every draft to twice the id."""
    absolute = np.flatnonzero(case.arrays["t2d"])
    assert "absolute target ids" in message(with_arrays(case, d2t=absolute), dflash.read_speculators)


def test_faults_are_reported_together(case: GoldenCase) -> None:
    broken = changed(case, drop="mask_token_id", aux_hidden_state_layer_ids=[2, 3, 99], block_size=0)
    assert codes(broken, dflash.read_speculators) >= {"D101", "D120", "C032"}


def test_out_of_range_id_names_the_convention(case: GoldenCase) -> None:
    ids = {"target_layer_ids": [1, 2, case.target.num_layers], "mask_token_id": 255}
    text = message(original(case, dflash_config=ids), dflash.read_original)
    assert "output of layer" in text
    assert "--layer-id-base input" in text
    assert read(original(case, dflash_config=ids), dflash.read_original, layer_id_base="input").config.fused_layers[
        :2
    ] == (1, 2)


def test_deepspec_forbids_the_last_layer_and_allows_the_embedding(case: GoldenCase) -> None:
    last = case.target.num_layers - 1
    assert codes(deepspec(case, target_layer_ids=[1, 2, last]), dflash.read_original, sample_from_anchor=False) == {
        "D101"
    }
    layout = read(deepspec(case, target_layer_ids=[-1, 1, 2]), dflash.read_original, sample_from_anchor=False)
    assert layout.config.fused_layers == (0, 2, 3)


def test_deepspec_must_say_its_slot_layout(case: GoldenCase) -> None:
    assert codes(deepspec(case), dflash.read_original) == {"D125"}
    assert read(deepspec(case), dflash.read_original, sample_from_anchor=True).config.num_drafts == 8


def test_slot_layout_follows_from_the_number_of_drafts(case: GoldenCase) -> None:
    silent = changed(case, drop="sample_from_anchor")
    layout = read(silent, dflash.read_speculators)
    assert not layout.config.sample_from_anchor  # type: ignore[attr-defined]
    assert any("sample_from_anchor is not stated" in note for note in layout.notes)


def test_causality(case: GoldenCase) -> None:
    """Sliding layers are causal, full ones bidirectional; a stated flag wins, and a guess is told."""

    def causal(changed_case: GoldenCase, reader: object = dflash.read_original) -> tuple[bool, ...]:
        return read(changed_case, reader).config.causal  # type: ignore[arg-type, attr-defined]

    assert causal(original(case)) == (True, True, True)
    assert any("D131" in line for line in read(original(case), dflash.read_original).warnings)
    assert causal(original(case, is_causal=False)) == (False, False, False)
    nested = {"target_layer_ids": [1, 2, 3], "mask_token_id": 255, "causal": False}
    assert causal(original(case, dflash_config=nested)) == (False, False, False)
    assert causal(original(case, layer_types=["full_attention"] * 2 + ["sliding_attention"])) == (False, False, True)
    silent = read(changed(case, drop="sliding_window_non_causal"), dflash.read_speculators)
    assert silent.config.causal == (True, True, True)  # type: ignore[attr-defined]
    assert any("D131" in line and "does not state causality" in line for line in silent.warnings)
    assert not any("D131" in line for line in read(case, dflash.read_speculators).warnings)
    both = changed(case, sliding_window_non_causal=True)
    assert causal(both, dflash.read_speculators) == (False, False, False)
    assert any("D131" in line for line in read(both, dflash.read_speculators).warnings)


def test_window_smaller_than_a_bidirectional_block_is_refused(case: GoldenCase) -> None:
    narrow = changed(case, sliding_window_non_causal=True, transformer_layer_config__sliding_window=7)
    assert codes(narrow, dflash.read_speculators) == {"D132"}


def test_num_drafts_up_to_what_was_trained(case: GoldenCase) -> None:
    assert read(case, dflash.read_speculators, num_drafts=3).config.num_drafts == 3
    assert codes(case, dflash.read_speculators, num_drafts=8) == {"D126"}
    assert codes(case, dflash.read_speculators, num_drafts=0) == {"D126"}


@pytest.mark.parametrize(("name", "code"), [("block_size", "D124"), ("mask_token_id", "D122")])
def test_two_values_of_one_key(case: GoldenCase, name: str, code: str) -> None:
    nested = {"target_layer_ids": [1, 2, 3], "mask_token_id": 255, "block_size": 8}
    assert codes(original(case, dflash_config=nested), dflash.read_original) == set()
    assert codes(original(case, dflash_config=nested, **{name: 4}), dflash.read_original) == {code}


def test_mask_token_option_wins(case: GoldenCase) -> None:
    assert read(case, dflash.read_speculators, mask_token_id=7).config.mask_token_id == 7


def test_dead_mask_row_is_warned_of(case: GoldenCase) -> None:
    table = case.arrays["embed_tokens.weight"].copy()
    table[255] = 0
    warnings = read(with_arrays(case, embed_tokens__weight=table), dflash.read_speculators).warnings
    assert any("D121" in line and "255" in line for line in warnings)
    assert not any("D121" in line for line in read(case, dflash.read_speculators).warnings)


def test_mask_that_ends_texts_is_warned_of(case: GoldenCase) -> None:
    ending = replace(case, target=replace(case.target, eos_token_ids=(255,)))
    assert any("D121" in line for line in read(ending, dflash.read_speculators).warnings)


@pytest.mark.parametrize("shape", [(48,), (1, 48)])
@pytest.mark.parametrize("name", ["mask_embedding", "mask_embedding__weight"])
def test_mask_vector_is_used(case: GoldenCase, name: str, shape: tuple[int, ...]) -> None:
    vector = np.arange(48, dtype=np.float32).reshape(shape)
    layout = read(with_arrays(case, **{name: vector}), dflash.read_speculators)
    assert layout.config.mask_embedding  # type: ignore[attr-defined]
    assert layout.tensors["mask_embedding"].shape == (48,)
    assert layout.tensors["mask_embedding"].read().tolist() == vector.ravel().tolist()


def test_target_tables_are_taken_where_absent(case: GoldenCase) -> None:
    bare = with_arrays(original(case), embed_tokens__weight=None, lm_head__weight=None)
    layout = read(bare, dflash.read_original)
    assert not {"embed_tokens.weight", "lm_head.weight"} & set(layout.tensors)
    assert any("drafter lm_head: the target's" in note for note in layout.notes)


def test_training_only_tensors_are_ignored(case: GoldenCase) -> None:
    extra = with_arrays(case, verifier_norm__weight=np.ones(48, np.float32))
    assert "verifier_norm.weight" not in read(extra, dflash.read_speculators).tensors


def test_unknown_keys_are_reported(case: GoldenCase) -> None:
    warnings = read(changed(case, hyper_drive=1), dflash.read_speculators).warnings
    assert any("hyper_drive" in line for line in warnings)


def test_unknown_keys_of_the_original_layouts_are_reported(case: GoldenCase) -> None:
    """At the top and in the object inside; what every transformers configuration carries is no news."""
    ids = {"target_layer_ids": [1, 2, 3], "mask_token_id": 255}
    ordinary = {"_name_or_path": "x", "auto_map": {}, "torch_dtype": "bfloat16", "use_cache": True, "prefix": None}
    for plain in (original(case, **ordinary), deepspec(case, **ordinary)):
        layout = read(plain, dflash.read_original, sample_from_anchor=False)
        assert not any("D002" in line for line in layout.warnings)
    strange = original(case, hyper_drive=1, dflash_config={**ids, "warp_drive": 2})
    warnings = read(strange, dflash.read_original).warnings
    assert "warning[D002] config.json: unknown keys, not used: hyper_drive" in warnings
    assert "warning[D002] config.json: dflash_config: unknown keys, not used: warp_drive" in warnings


@pytest.mark.parametrize(("name", "value"), [("is_neox_style", False), ("use_aux_hidden_state", False)])
def test_options_that_are_on_by_themselves(case: GoldenCase, name: str, value: bool) -> None:
    nested = {"target_layer_ids": [1, 2, 3], "mask_token_id": 255, name: value}
    assert codes(original(case, dflash_config=nested), dflash.read_original) == {"D132"}
    assert codes(original(case, **{name: value}), dflash.read_original) == {"D132"}
    assert codes(original(case, **{name: not value, "logit_scale": 1}), dflash.read_original) == set()


@pytest.mark.parametrize("name", ["attention_sink_bias", "use_swa", "fc_layernorm"])
def test_options_that_are_not_built_are_refused(case: GoldenCase, name: str) -> None:
    nested = {"target_layer_ids": [1, 2, 3], "mask_token_id": 255, name: True}
    assert codes(original(case, dflash_config=nested), dflash.read_original) == {"D132"}


def test_drafter_of_fewer_positions_is_warned_of(case: GoldenCase) -> None:
    short = changed(case, transformer_layer_config__max_position_embeddings=32)
    layout = read(short, dflash.read_speculators)
    assert layout.config.max_position == 32
    assert any("D140" in line for line in layout.warnings)
