# SPDX-License-Identifier: Apache-2.0
"""EAGLE-3 and P-EAGLE checkpoints, in the speculators format and in their authors'."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hspec_trt.checkpoint.formats import eagle3, find_reader, peagle
from hspec_trt.checkpoint.formats.layout import DrafterLayout, DrafterSource
from hspec_trt.config.drafters_eagle import NO_MASK_TOKEN, Eagle3Config, PEagleConfig
from tests.support.golden_drafters import GoldenCase, load_case
from tests.unit.checkpoint.drafter_formats import changed, codes, message, read, with_arrays


@pytest.fixture(scope="module")
def chain() -> GoldenCase:
    return load_case("eagle3_qwen3")


@pytest.fixture(scope="module")
def parallel() -> GoldenCase:
    return load_case("peagle_llama")


def authors(case: GoldenCase, **extra: object) -> GoldenCase:
    """The same drafter in the authors' layout: flat config, ``midlayer.*``, no layer ids."""
    layer = dict(case.config_json["transformer_layer_config"])  # type: ignore[call-overload]
    config = {**layer, "draft_vocab_size": case.config_json["draft_vocab_size"], "architectures": ["X"], **extra}
    arrays = {name.replace("layers.0.", "midlayer."): array for name, array in case.arrays.items()}
    return replace(case, config_json=config, arrays=arrays)


def test_eagle3_configuration(chain: GoldenCase) -> None:
    layout = read(chain, eagle3.read_speculators)
    config = layout.config
    assert isinstance(config, Eagle3Config)
    assert config.fused_layers == (2, 3, 4)
    assert (config.norm_before_residual, config.norm_before_fc, config.fc_norm, config.norm_output) == (
        True,
        True,
        False,
        True,
    )
    assert config.qk_norm
    assert config.own_embedding
    assert (config.block_size, config.num_drafts, config.mask_token_id) == (1, 5, NO_MASK_TOKEN)
    assert config.needs_next_ids
    assert config.num_cache_layers == 1
    assert set(layout.tensors) == set(chain.arrays)


def test_peagle_configuration(parallel: GoldenCase) -> None:
    config = read(parallel, peagle.read_speculators).config
    assert isinstance(config, PEagleConfig)
    assert (config.fused_layers, config.windows, config.qk_norm) == ((1, 2, 4), (0, 0), False)
    assert (config.block_size, config.num_drafts, config.mask_token_id) == (4, 4, 255)
    assert load_case("peagle_qwen3").layout().config.windows == (12, 12, 12)  # type: ignore[attr-defined]


def test_authors_layout_needs_the_layer_ids_and_the_number_of_drafts(chain: GoldenCase) -> None:
    flat = authors(chain, norm_before_residual=True, norm_before_fc=True, norm_output=True)
    assert codes(flat, eagle3.read_original) == {"D100", "D127"}
    assert "vLLM assumes 2,3,3, input of layer" in message(flat, eagle3.read_original)
    layout = read(flat, eagle3.read_original, layer_ids=(2, 3, 4), num_drafts=5)
    assert layout.config == read(chain, eagle3.read_speculators).config
    assert set(layout.tensors) == set(chain.arrays)


def test_no_usual_layer_ids_are_offered_for_short_targets(chain: GoldenCase) -> None:
    """[2, n // 2, n - 3] of four layers would be 2, 2, 1."""
    short = replace(chain, target=replace(chain.target, num_layers=4))
    assert "..." in message(authors(short), eagle3.read_original)


def test_authors_ids_in_either_place(chain: GoldenCase) -> None:
    nested = authors(chain, eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 3, 4]}, norm_before_fc=True)
    assert read(nested, eagle3.read_original, num_drafts=5).config.fused_layers == (2, 3, 4)
    deepspec = authors(chain, target_layer_ids=[1, 2, 3], norm_before_fc=True)
    assert read(deepspec, eagle3.read_original, num_drafts=5).config.fused_layers == (2, 3, 4)


@pytest.mark.parametrize("prefix", ["", "model."])
def test_authors_layout_is_recognised_by_its_tensors(chain: GoldenCase, prefix: str) -> None:
    flat = authors(chain, norm_before_residual=True, norm_before_fc=True, norm_output=True)
    flat = replace(flat, arrays={prefix + name: array for name, array in flat.arrays.items()})

    def found(source: DrafterSource) -> DrafterLayout:
        return find_reader(source)(source)

    layout = read(flat, found, layer_ids=(2, 3, 4), num_drafts=5)
    assert layout.config == read(chain, eagle3.read_speculators).config
    assert set(layout.tensors) == set(chain.arrays)


def test_authors_residual_is_plain(chain: GoldenCase) -> None:
    """Where nothing else is stated, and then with a warning, since tools that keep the layout may differ."""
    silent, answers = authors(chain, norm_before_fc=True), {"layer_ids": (2, 3, 4), "num_drafts": 5}
    layout = read(silent, eagle3.read_original, **answers)
    assert layout.config.norm_before_residual is False  # type: ignore[attr-defined]
    assert any("D134" in line for line in layout.warnings)
    asked = read(silent, eagle3.read_original, norm_before_residual=True, **answers)
    stated = read(changed(silent, norm_before_residual=True), eagle3.read_original, **answers)
    for layout in (asked, stated):
        assert layout.config.norm_before_residual is True  # type: ignore[attr-defined]
        assert not any("D134" in line for line in layout.warnings)


def test_fed_back_state_is_printed(chain: GoldenCase) -> None:
    line = "serial passes: the state fed back is taken"
    assert f"{line} after the final norm" in read(chain, eagle3.read_speculators).notes
    silent = read(changed(chain, drop="norm_output"), eagle3.read_speculators)
    assert f"{line} before the final norm (norm_output is not stated)" in silent.notes


def test_unknown_keys_of_the_authors_layout_are_reported(chain: GoldenCase) -> None:
    ids = {"eagle_aux_hidden_state_layer_ids": [2, 3, 4], "use_aux_hidden_state": True}
    plain = authors(chain, eagle_config=ids, norm_before_fc=True)
    assert not any("D002" in line for line in read(plain, eagle3.read_original, num_drafts=5).warnings)
    strange = changed(plain, hyper_drive=1, eagle_config={**ids, "warp_drive": 2})
    warnings = read(strange, eagle3.read_original, num_drafts=5).warnings
    assert "warning[D002] config.json: unknown keys, not used: hyper_drive" in warnings
    assert "warning[D002] config.json: eagle_config: unknown keys, not used: warp_drive" in warnings


@pytest.mark.parametrize("option", [{"is_neox_style": False}, {"use_aux_hidden_state": False}])
def test_authors_options_that_are_not_built(chain: GoldenCase, option: dict[str, bool]) -> None:
    ids = {"eagle_aux_hidden_state_layer_ids": [2, 3, 4]}
    for flat in (authors(chain, eagle_config=ids, **option), authors(chain, eagle_config={**ids, **option})):
        assert codes(changed(flat, norm_before_fc=True), eagle3.read_original, num_drafts=5) == {"D132"}


def test_residual_rule_is_asked_for(chain: GoldenCase) -> None:
    silent = changed(chain, drop="norm_before_residual")
    assert codes(silent, eagle3.read_speculators) == {"D134"}
    assert (
        read(silent, eagle3.read_speculators, norm_before_residual=True).config
        == read(chain, eagle3.read_speculators).config
    )


def test_embedding_may_be_the_targets(chain: GoldenCase, parallel: GoldenCase) -> None:
    shared = with_arrays(chain, embed_tokens__weight=None)
    assert read(shared, eagle3.read_speculators).config.own_embedding is False  # type: ignore[attr-defined]
    assert codes(with_arrays(parallel, embed_tokens__weight=None), peagle.read_speculators) == {"D116"}


def test_each_format_refuses_the_other(chain: GoldenCase, parallel: GoldenCase) -> None:
    assert "D001" in codes(parallel, eagle3.read_speculators)
    assert codes(changed(chain, mask_token_id=255), peagle.read_speculators) == {"C020"}


@pytest.mark.parametrize("name", ["mask_token_id", "ptd_token_id", "pard_token"])
def test_mask_token_under_each_name(parallel: GoldenCase, name: str) -> None:
    flat = authors(
        parallel,
        eagle_aux_hidden_state_layer_ids=[1, 2, 4],
        norm_before_residual=True,
        norm_before_fc=True,
        **{name: 255},
    )
    flat = with_arrays(flat, mask_hidden=flat.arrays["mask_hidden"].reshape(1, 96))
    layout = read(flat, peagle.read_original, num_drafts=4)
    assert layout.config == read(parallel, peagle.read_speculators).config
    assert not any("D002" in line for line in layout.warnings)
    assert layout.tensors["mask_hidden"].shape == (1, 1, 96)


ONE_WRONG = {
    "mask missing": ({"drop": "mask_token_id"}, "D120"),
    "mask given twice": ({"pard_token": 3}, "D122"),
    "mask = vocab": ({"mask_token_id": 256}, "D122"),
    "ids missing": ({"eagle_aux_hidden_state_layer_ids": None}, "D100"),
    "one id too few": ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, "D102"),
    "ids off the end": ({"eagle_aux_hidden_state_layer_ids": [1, 2, 99]}, "D101"),
    "both fusion norms": ({"fc_norm": True}, "D134"),
    "fusion norm forgotten": ({"norm_before_fc": False}, "C020"),
    "layers of another type": ({"transformer_layer_config__model_type": "qwen3"}, "C020"),
    "number of drafts missing": ({"speculators_config": {}}, "D127"),
    "other rope": ({"transformer_layer_config__rope_parameters": {"rope_type": "dynamic"}}, "C040"),
}


@pytest.mark.parametrize("name", ONE_WRONG)
def test_one_wrong_key_is_refused(parallel: GoldenCase, name: str) -> None:
    change, code = ONE_WRONG[name]
    assert code in codes(changed(parallel, **change), peagle.read_speculators)  # type: ignore[arg-type]


def test_parallel_drafts_are_bounded_and_a_chain_is_not(chain: GoldenCase, parallel: GoldenCase) -> None:
    assert codes(parallel, peagle.read_speculators, num_drafts=5) == {"D126"}
    assert read(parallel, peagle.read_speculators, num_drafts=2).config.num_drafts == 2
    assert read(chain, eagle3.read_speculators, num_drafts=9).config.num_drafts == 9


def test_first_layer_reads_twice_the_width(chain: GoldenCase) -> None:
    half = chain.arrays["layers.0.self_attn.q_proj.weight"][:, :48]
    assert codes(with_arrays(chain, layers__0__self_attn__q_proj__weight=half), eagle3.read_speculators) == {"C022"}


def test_names_that_collide_are_refused(chain: GoldenCase) -> None:
    twice = authors(chain)
    twice = replace(twice, arrays={**twice.arrays, "layers.0.hidden_norm.weight": np.ones(48, np.float32)})
    assert "D001" in codes(twice, eagle3.read_original, layer_ids=(2, 3, 4), num_drafts=5)
