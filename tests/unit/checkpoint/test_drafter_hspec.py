# SPDX-License-Identifier: Apache-2.0
"""Every key of H-Spec's published configuration: honoured, or refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.checkpoint.formats.hspec import KEYS, NEUTRAL, TRAINING_KEYS
from hspec_trt.checkpoint.formats.hspec_json import hspec_json, rope_json
from hspec_trt.checkpoint.formats.hspec_weights import hspec_weights
from hspec_trt.config.drafter import HSpecConfig
from hspec_trt.config.rope import RopeConfig
from tests.support.edited_drafter import DROP, codes, golden_target, opened, report, write_drafter
from tests.support.golden import GOLDEN

CASES = ("hspec_qwen3", "hspec_llama", "hspec_fullattn", "hspec_nokv", "hspec_noseed")
PATTERN = ("mamba", "mlp", *(("mamba", "attention", "mlp") * 3))


def _config(folder: Path, case: str = "hspec_qwen3", **options: object) -> HSpecConfig:
    config = opened(folder, case, **options).config
    assert isinstance(config, HSpecConfig)
    return config


def test_the_released_recipe_in_small() -> None:
    config = _config(GOLDEN / "hspec_qwen3" / "drafter")
    assert config == HSpecConfig(
        kind="hspec",
        vocab_size=256,
        draft_vocab_size=96,
        hidden_size=64,
        intermediate_size=128,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rms_norm_eps=1e-6,
        rope=RopeConfig(theta=1e6),
        block_size=8,
        num_drafts=7,
        mask_token_id=255,
        fused_layers=(1, 3, 5),
        max_position=512,
        block_pattern=PATTERN,  # type: ignore[arg-type]
        attn_kv_layers=(2, 3, 5),
        attn_windows=(12, 12, 12),
        mamba_num_heads=6,
        mamba_head_dim=16,
        mamba_d_state=4,
        mamba_n_groups=2,
        mamba_conv_kernel=4,
        seed_mode="shared",
        markov_rank=8,
        confidence_head=True,
        confidence_with_markov=True,
    )


def test_the_other_golden_drafters() -> None:
    llama = _config(GOLDEN / "hspec_llama" / "drafter", "hspec_llama")
    assert (llama.seed_mode, llama.num_seed_projections, llama.reduced_vocab) == ("per_layer", 4, False)
    assert (llama.rope.rope_type, llama.rope.factor, llama.rope.original_max_position) == ("llama3", 8.0, 64)
    full = _config(GOLDEN / "hspec_fullattn" / "drafter", "hspec_fullattn")
    assert (full.attn_windows, full.seed_mode, full.fc_norm, full.use_qk_norm) == ((0, 0, 0), "once", True, False)
    assert (full.attn_kv_layers, full.markov_rank, full.confidence_head) == ((3, 1, 3), 0, False)
    assert not _config(GOLDEN / "hspec_nokv" / "drafter", "hspec_nokv").target_kv_reuse
    noseed = _config(GOLDEN / "hspec_noseed" / "drafter", "hspec_noseed")
    assert (noseed.state_injection, noseed.fused_layers, noseed.num_seed_projections) == (False, (), 0)


def test_unknown_keys_are_warned_of_and_known_ones_are_not(tmp_path: Path) -> None:
    drafter = opened(write_drafter(tmp_path / "d", brand_new_option=1, another=None))
    assert drafter.warnings == ("warning[D002] config.json: unknown keys, not used: another, brand_new_option",)
    stored = json.loads((GOLDEN / "hspec_qwen3" / "drafter" / "config.json").read_text())
    assert KEYS | TRAINING_KEYS | set(NEUTRAL) >= {
        key for key in stored if key.startswith(("mamba", "attn", "sliding"))
    }


@pytest.mark.parametrize(
    ("code", "keys"),
    [
        ("D132", {"layer_mapping": [[0, 1]]}),
        ("D132", {"no_mlp_layer_indices": [1]}),
        ("D132", {"sliding_window_non_causal": True}),
        ("D132", {"sliding_window_prefix": 4}),
        ("D132", {"sample_from_anchor": True}),
        ("D130", {"mamba_state_dtype": "float16"}),
        ("D150", {"quantization_config": {"quant_method": "awq"}}),
        ("D133", {"markov_head_type": "gated"}),
        ("D133", {"markov_rank": 0}),
        ("D132", {"mamba_seed_mode": "twice"}),
        ("D132", {"mamba_n_groups": 4}),
        ("D132", {"block_pattern": ["mamba", "attention"]}),
        ("D132", {"block_pattern": []}),
        ("D132", {"block_pattern": ["mamba", "dance", "mlp"]}),
        ("D132", {"block_pattern": ["attention", "mlp", "attention", "mlp", "attention", "mlp"]}),
        ("D132", {"block_pattern": ["mamba", "mlp"]}),
        ("C033", {"block_pattern": DROP}),
        ("C031", {"block_pattern": "mamba mlp"}),
        ("D100", {"attn_kv_layer_ids": DROP}),
        ("D101", {"attn_kv_layer_ids": [2, 3, 6]}),
        ("D101", {"attn_kv_layer_ids": [-1, 3, 5]}),
        ("D104", {"attn_kv_layer_ids": [2, 3]}),
        ("D104", {"aux_hidden_state_layer_ids": [1, 3, 5]}),
        ("D131", {"transformer_layer_config__num_hidden_layers": 2}),
        ("D100", {"latent_fusion_layer_ids": DROP, "aux_hidden_state_layer_ids": DROP}),
        ("D101", {"latent_fusion_layer_ids": [1, 3, 6]}),
        ("D103", {"latent_fusion_layer_ids": [1, 3, 3]}),
        ("D102", {"latent_fusion_layer_ids": [1, 3]}),
        ("D120", {"mask_token_id": DROP}),
        ("D122", {"mask_token_id": -1}),
        ("D122", {"mask_token_id": 256}),
        ("D124", {"block_size": DROP}),
        ("C032", {"block_size": 0}),
        ("D125", {"block_size": 5}),
        ("D131", {"transformer_layer_config__layer_types": ["sliding_attention"]}),
        ("D131", {"transformer_layer_config__sliding_window": None}),
        ("D131", {"transformer_layer_config__layer_types": ["sliding_attention", "round", "full_attention"]}),
        ("C033", {"draft_vocab_size": DROP}),
        ("D110", {"draft_vocab_size": 300}),
        ("D112", {"draft_vocab_size": 256}),
        ("C032", {"mamba_num_heads": 0}),
        ("C032", {"mamba_d_state": 10**9}),
        ("C031", {"markov_rank": "8"}),
        ("C031", {"disable_target_kv_reuse": 1}),
        ("D114", {"target_hidden_size": 128}),
        ("D115", {"attn_rope": [{"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}]}),
        ("C040", {"attn_rope": [{"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e6}}]}),
    ],
)
def test_refused(tmp_path: Path, code: str, keys: dict[str, object]) -> None:
    assert code in codes(write_drafter(tmp_path / "d", **keys))


def test_messages_name_field_value_and_range(tmp_path: Path) -> None:
    """Cases A11 and A19, in words."""
    text = report(write_drafter(tmp_path / "a", latent_fusion_layer_ids=[1, 3, 48]))
    assert "latent_fusion_layer_ids: 48 is out of range for a 6-layer target; needed: 0..5" in text
    assert "(convention: input of layer)" in text
    text = report(write_drafter(tmp_path / "b", latent_fusion_layer_ids=[1, 3]))
    assert "fc.weight expects 3 fused states (192 = 3 x 64), the layer ids give 2: [1, 3]" in text
    text = report(write_drafter(tmp_path / "c", mask_token_id=DROP))
    assert "drafter config has no mask_token_id" in text
    assert "pass --mask-token-id" in text


def test_the_users_answers_win(tmp_path: Path) -> None:
    assert _config(write_drafter(tmp_path / "a", mask_token_id=DROP), mask_token_id=9).mask_token_id == 9
    fewer = _config(write_drafter(tmp_path / "b"), num_drafts=2)
    assert (fewer.num_drafts, fewer.block_size) == (2, 8)
    assert codes(write_drafter(tmp_path / "b"), num_drafts=8) == ["D126"]


def test_an_end_token_as_mask_is_warned_of(tmp_path: Path) -> None:
    """Case A19, the last of four."""
    drafter = opened(write_drafter(tmp_path / "d", mask_token_id=2))
    assert drafter.warnings == ("warning[D121] mask_token_id 2 is also an end token of the target",)


def test_fused_states_keep_their_order_and_fall_back_to_the_formats_own_rule(tmp_path: Path) -> None:
    assert _config(write_drafter(tmp_path / "a", latent_fusion_layer_ids=[5, 1, 3])).fused_layers == (5, 1, 3)
    assert _config(write_drafter(tmp_path / "b", latent_fusion_layer_ids=None)).fused_layers == (2, 3, 5)
    assert _config(write_drafter(tmp_path / "c", latent_fusion_layer_ids=[0, 1, 5])).fused_layers == (0, 1, 5)


def test_windows_per_sub_layer(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    mixed = _config(write_drafter(tmp_path / "a", transformer_layer_config__layer_types=kinds))
    assert mixed.attn_windows == (12, 0, 12)
    entry = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "sliding_window": 64}
    over = write_drafter(tmp_path / "b", transformer_layer_config__layer_types=kinds, attn_rope=[entry] * 3)
    assert codes(over) == ["D131"]


def test_rope_is_the_targets_own(tmp_path: Path) -> None:
    """`attn_rope` has the last word over the drafter's own layer configuration; without it that one counts."""
    wrong = {"rope_type": "default", "rope_theta": 5e5}
    assert _config(write_drafter(tmp_path / "a", transformer_layer_config__rope_parameters=wrong)).rope.theta == 5e5
    plain = write_drafter(tmp_path / "b", attn_rope=DROP, transformer_layer_config__rope_parameters=wrong)
    assert codes(plain) == ["D115"]
    partial = write_drafter(tmp_path / "c", transformer_layer_config__partial_rotary_factor=0.5)
    assert "partial_rotary_factor 0.5" in report(partial)


def test_ablations_by_name(tmp_path: Path) -> None:
    """No attention needs empty K/V layers; no mamba needs the seed switched off."""
    dropped = {name: DROP for name in hspec_weights(_config(GOLDEN / "hspec_qwen3" / "drafter")) if "layers" in name}
    folder = write_drafter(
        tmp_path / "m",
        block_pattern=["mamba", "mlp"],
        attn_kv_layer_ids=[],
        aux_hidden_state_layer_ids=[],
        attn_rope=[],
        transformer_layer_config__num_hidden_layers=0,
        transformer_layer_config__layer_types=[],
        tensors={name: value for name, value in dropped.items() if not name.startswith(("layers.0.", "layers.1."))},  # type: ignore[misc]
    )
    config = _config(folder)
    assert (config.block_pattern, config.attn_kv_layers, config.attn_windows) == (("mamba", "mlp"), (), ())


def test_vocabulary_maps(tmp_path: Path) -> None:
    ids = np.arange(96, dtype=np.int64)
    given = opened(write_drafter(tmp_path / "g")).tensors["d2t"].read() + ids
    bad = {
        "zero": ids * 0,
        "arange": ids,
        "absolute": given,
        "far": np.where(ids == 7, 10_000, given - ids),
        "negative": np.where(ids == 0, -1, given - ids),
        "twice": np.where(ids == 5, given[4] - 5, given - ids),
        "short": (given - ids)[:-1],
        "real": (given - ids).astype(np.float32),
    }
    for name, d2t in bad.items():
        assert codes(write_drafter(tmp_path / name, tensors={"d2t": d2t})) == ["D112"], name
    marks = np.zeros(256, bool)
    marks[given[:-1]] = True
    assert codes(write_drafter(tmp_path / "t2d", tensors={"t2d": marks})) == ["D112"]
    assert opened(write_drafter(tmp_path / "narrow", tensors={"d2t": (given - ids).astype(np.int32)})).tensors["d2t"]


@pytest.mark.parametrize("case", CASES)
def test_written_and_read_again(tmp_path: Path, case: str) -> None:
    """What the trainer writes is what the loader understands."""
    config = _config(GOLDEN / case / "drafter", case)
    target = golden_target(case)
    folder = write_drafter(tmp_path / "d", case)
    (folder / "config.json").write_text(json.dumps(hspec_json(config, target.config)))
    assert opened(folder, case).config == config
    assert opened(folder, case).warnings == ()


@pytest.mark.parametrize(
    "rope",
    [
        RopeConfig(theta=1e4, partial_rotary_factor=0.5),
        RopeConfig("linear", factor=2.0),
        RopeConfig("llama3", 5e5, 8.0, 64, 1.0, 4.0),
        RopeConfig("yarn", factor=4.0, original_max_position=64, beta_fast=16.0, truncate=False),
        RopeConfig("yarn", factor=4.0, original_max_position=64, attention_factor=1.25),
    ],
)
def test_every_rotation_survives_writing(tmp_path: Path, rope: RopeConfig) -> None:
    target = golden_target()
    config = replace(_config(GOLDEN / "hspec_qwen3" / "drafter"), rope=rope)
    text = hspec_json(config, target.config)
    assert rope_json(rope)["rope_type"] == rope.rope_type
    folder = write_drafter(tmp_path / "d")
    (folder / "config.json").write_text(json.dumps(text))
    other = replace(target, config=replace(target.config, rope=rope))
    assert load_drafter(folder, other).config.rope == rope
