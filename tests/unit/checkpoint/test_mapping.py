# SPDX-License-Identifier: Apache-2.0
"""What does not fit between a configuration and its tensors is reported whole, in the words of ``reports/``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hspec_trt.checkpoint.name_lists import listed, nearest
from hspec_trt.checkpoint.target import load_target
from tests.support.faults import codes_of, report_of
from tests.support.tiny_models import TinyTarget, Weights, edit_config, random_weights, write_target

REPORTS = Path(__file__).parent / "reports"
DOWN = "model.layers.2.mlp.down_proj.weight"


def _one_missing(weights: Weights) -> None:
    del weights[DOWN]


def _three_misnamed(weights: Weights) -> None:
    for layer in (0, 1, 3):
        weights[f"layers.{layer}.mlp.down.weight"] = weights.pop(f"model.layers.{layer}.mlp.down_proj.weight")


def _whole_layer_missing(weights: Weights) -> None:
    for name in [name for name in weights if name.startswith("model.layers.1.")]:
        del weights[name]


def _other_prefix(weights: Weights) -> None:
    for name in list(weights):
        weights[f"foo.{name}"] = weights.pop(name)


def _unused_only(weights: Weights) -> None:
    weights["model.layers.4.mlp.down_proj.weight"] = weights[DOWN]


def _qk_norms_in_llama(weights: Weights) -> None:
    for layer in range(4):
        weights |= {f"model.layers.{layer}.self_attn.{name}_norm.weight": np.ones(16, np.float32) for name in "qk"}


def _everything_at_once(weights: Weights) -> None:
    del weights["model.norm.weight"]
    weights["extra"] = np.ones(1, np.float32)
    weights[DOWN] = weights[DOWN].T.copy()
    weights["model.layers.0.mlp.up_proj.weight"] = weights["model.layers.0.mlp.up_proj.weight"].astype(np.int8)


def _no_head(weights: Weights) -> None:
    del weights["lm_head.weight"]


def _nothing(weights: Weights) -> None:
    weights.clear()


DAMAGES = (
    _one_missing,
    _three_misnamed,
    _whole_layer_missing,
    _other_prefix,
    _unused_only,
    _qk_norms_in_llama,
    _everything_at_once,
    _no_head,
    _nothing,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def test_report(tmp_path: Path, damage: object) -> None:
    """Cases A7 and A8, to the letter."""
    assert callable(damage)
    weights = random_weights(TinyTarget())
    damage(weights)
    report = report_of(lambda: load_target(write_target(tmp_path / "tiny", weights=weights)))
    expected = REPORTS / f"{damage.__name__.strip('_')}.txt"
    assert report + "\n" == expected.read_text()


@pytest.mark.parametrize(
    "name", ["model.rotary_emb.inv_freq", *(f"model.layers.{i}.self_attn.rotary_emb.inv_freq" for i in (0, 3))]
)
def test_rope_tables_of_old_checkpoints_are_ignored(tmp_path: Path, name: str) -> None:
    weights = random_weights(TinyTarget()) | {name: np.ones(8, np.float32)}
    assert name not in load_target(write_target(tmp_path, weights=weights)).tensors


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.rotary_emb.inv_freq.x", "x.model.rotary_emb.inv_freq"])
def test_ignored_names_are_whole_names(tmp_path: Path, name: str) -> None:
    weights = random_weights(TinyTarget()) | {name: np.ones(8, np.float32)}
    assert codes_of(lambda: load_target(write_target(tmp_path, weights=weights))) == ["C020"]


@pytest.mark.parametrize("option", ["attention_bias", "mlp_bias"])
def test_biases_are_wanted_only_where_the_configuration_says_so(tmp_path: Path, option: str) -> None:
    with_bias = write_target(tmp_path / "a", TinyTarget(**{option: True}))
    edit_config(with_bias, **{option: False})
    assert "bias" in report_of(lambda: load_target(with_bias))
    without = write_target(tmp_path / "b")
    edit_config(without, **{option: True})
    assert "bias" in report_of(lambda: load_target(without))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a.0.b", "a.1.b", "a.2.b", "a.5.b", "c"], "a.{0-2,5}.b, c"),
        (["a.7.b"], "a.7.b"),
        (["a.3.b", "a.3.c"], "a.3.b, a.3.c"),
        ([f"n{i}" for i in range(40)], ", ".join(f"n{i}" for i in range(32)) + " and 8 more"),
        ([], ""),
    ],
)
def test_names_are_listed_by_layers(names: list[str], text: str) -> None:
    assert listed(names) == text


def test_nearest_names() -> None:
    assert nearest("model.norm.weight", ["norm.weight", "zzz"]) == ["norm.weight"]
    assert nearest("model.norm.weight", ["zzz"]) == []
