# SPDX-License-Identifier: Apache-2.0
"""Rope parameters in both spellings, their bounds, and the scalings that are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hspec_trt.checkpoint.target import load_target
from hspec_trt.config.rope import RopeConfig
from tests.support.faults import codes_of, report_of
from tests.support.tiny_models import DROP, ROPES, edit_config


def _rope(folder: Path, **changes: Any) -> RopeConfig:
    edit_config(folder, **({"rope_parameters": DROP} | changes))
    return load_target(folder).config.rope


def test_nothing_stated_is_the_default(folder: Path) -> None:
    assert _rope(folder) == RopeConfig()
    assert _rope(folder, rope_scaling=None, rope_theta=None) == RopeConfig()


def test_theta_beside_or_inside(folder: Path) -> None:
    assert _rope(folder, rope_theta=5e5).theta == 5e5
    assert _rope(folder, rope_theta=DROP, rope_parameters={"rope_theta": 5e5}).theta == 5e5
    assert _rope(folder, rope_theta=5e5, rope_parameters={"rope_theta": 5e5}).theta == 5e5
    assert _rope(folder, rope_theta=5e5, rope_parameters={"rope_type": "default"}).theta == 5e5


def test_type_has_two_names(folder: Path) -> None:
    for keys in ({"type": "linear"}, {"rope_type": "linear"}, {"type": "linear", "rope_type": "linear"}):
        assert _rope(folder, rope_scaling={"factor": 2.0, **keys}) == RopeConfig("linear", factor=2.0)


def test_same_parameters_in_both_spellings(folder: Path) -> None:
    rope = {"rope_type": "linear", "factor": 2.0}
    assert _rope(folder, rope_parameters=rope, rope_scaling=rope).factor == 2.0


def test_null_type_inside_is_absent(folder: Path) -> None:
    assert _rope(folder, rope_parameters={"rope_type": None, "rope_theta": 1e4}) == RopeConfig()


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_original_length_is_the_maximum_where_it_is_not_stated(folder: Path, kind: str) -> None:
    rope = {key: value for key, value in ROPES[kind].items() if key != "original_max_position_embeddings"}
    assert _rope(folder, rope_parameters=rope).original_max_position == 256
    assert _rope(folder, rope_parameters=rope, original_max_position_embeddings=64).original_max_position == 64


def test_yarn_factor_that_is_null_is_the_ratio_of_lengths(folder: Path) -> None:
    assert _rope(folder, rope_parameters=ROPES["yarn"] | {"factor": None}).factor == 4.0


def test_yarn_options(folder: Path) -> None:
    extra = {"attention_factor": 1.25, "beta_fast": 16, "beta_slow": 2, "truncate": False}
    rope = _rope(folder, rope_parameters=ROPES["yarn"] | extra)
    assert (rope.attention_scaling, rope.beta_fast, rope.beta_slow, rope.truncate) == (1.25, 16.0, 2.0, False)


def test_partial_rotation(folder: Path) -> None:
    assert _rope(folder, partial_rotary_factor=0.5).rotary_dim(16) == 8
    assert (
        _rope(folder, partial_rotary_factor=DROP, rope_parameters={"partial_rotary_factor": 0.25}).rotary_dim(16) == 4
    )


YARN, LLAMA3 = ROPES["yarn"], ROPES["llama3"]
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "C040", "rope scaling 'dynamic' is not supported"),
    ({"rope_scaling": {"type": "longrope", "short_factor": []}}, "C040", "rope scaling 'longrope' is not supported"),
    ({"rope_parameters": {"rope_type": "mrope"}}, "C040", "needed: default, linear, llama3, yarn"),
    ({"rope_parameters": {"full_attention": ROPES["default"]}}, "C040", "rope parameters per layer type"),
    ({"rope_parameters": {"rope_type": 3}}, "C031", "rope_type is the integer 3"),
    ({"rope_parameters": "linear"}, "C031", "rope_parameters is the string 'linear'"),
    ({"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2.0}}, "C030", "but type is 'yarn'"),
    (
        {"rope_parameters": ROPES["linear"], "rope_scaling": ROPES["default"]},
        "C030",
        "rope_parameters and rope_scaling differ",
    ),
    ({"rope_theta": 1e5, "rope_parameters": {"rope_theta": 1e4}}, "C030", "rope_theta is 100000.0, but 10000.0 in"),
    ({"rope_theta": 0}, "C032", "rope_theta is 0"),
    ({"rope_theta": 1.0}, "C032", "rope_theta is 1"),
    ({"rope_theta": float("inf")}, "C032", "rope_theta is inf"),
    ({"rope_theta": "10000"}, "C031", "rope_theta is the string '10000'"),
    ({"rope_parameters": {"rope_type": "linear"}}, "C033", "factor is missing"),
    ({"rope_parameters": {"rope_type": "linear", "factor": 0.5}}, "C032", "factor is 0.5"),
    ({"rope_parameters": {"rope_type": "linear", "factor": float("nan")}}, "C032", "factor is nan"),
    ({"rope_parameters": YARN | {"original_max_position_embeddings": 0}}, "C032", "original_max_position_embeddings"),
    ({"rope_parameters": YARN | {"beta_fast": -1}}, "C032", "beta_fast is -1"),
    ({"rope_parameters": YARN | {"attention_factor": 0.0}}, "C032", "attention_factor is 0.0"),
    ({"rope_parameters": YARN | {"beta_fast": 1, "beta_slow": 2}}, "C030", "beta_fast 1 is below beta_slow 2"),
    ({"rope_parameters": {key: YARN[key] for key in ("rope_type", "rope_theta")}}, "C033", "factor is missing"),
    ({"rope_parameters": LLAMA3 | {"low_freq_factor": None}}, "C033", "low_freq_factor is missing"),
    ({"rope_parameters": LLAMA3 | {"high_freq_factor": 1.0}}, "C030", "high_freq_factor 1 is not above"),
    (
        {"rope_parameters": YARN, "original_max_position_embeddings": 32},
        "C030",
        "original_max_position_embeddings is 32, but 64 in",
    ),
    ({"partial_rotary_factor": 0.01}, "C030", "0 of 16 channels of a head are rotated"),
    ({"partial_rotary_factor": 1.5}, "C032", "partial_rotary_factor is 1.5"),
]


@pytest.mark.parametrize(("changes", "code", "text"), REFUSED, ids=[f"{row[1]} {row[2][:40]}" for row in REFUSED])
def test_parameters_that_are_refused(folder: Path, changes: dict[str, Any], code: str, text: str) -> None:
    edit_config(folder, **({"rope_parameters": DROP} | changes))
    report = report_of(lambda: load_target(folder))
    assert f"error[{code}]" in report and text in report and "config.json" in report


def test_a_refused_type_is_the_only_fault(folder: Path) -> None:
    edit_config(folder, rope_parameters={"rope_type": "longrope", "rope_theta": 1e4})
    assert codes_of(lambda: load_target(folder)) == ["C040"]
