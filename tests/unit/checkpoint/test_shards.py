# SPDX-License-Identifier: Apache-2.0
"""An index that does not fit its shards is refused before anything is mapped by it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hspec_trt.checkpoint.target import load_target
from tests.support.faults import codes_of, report_of
from tests.support.safetensors_writer import write_safetensors
from tests.support.tiny_models import TinyTarget, random_weights, write_json, write_target

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def _edit(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((folder / INDEX).read_text())
    edit(index)
    write_json(folder / INDEX, index)


def test_missing_shard_is_named(sharded: Path) -> None:
    (sharded / SECOND).unlink()
    report = report_of(lambda: load_target(sharded))
    assert report.startswith("error[C010]") and f"{SECOND} does not exist" in report and INDEX in report


def test_key_in_the_other_shard(sharded: Path) -> None:
    _edit(sharded, lambda index: index["weight_map"].update({"lm_head.weight": FIRST}))
    report = report_of(lambda: load_target(sharded))
    assert report.startswith("error[C009]") and "'lm_head.weight'" in report and FIRST in report


def test_stale_index_lacks_a_tensor(sharded: Path) -> None:
    _edit(sharded, lambda index: index["weight_map"].pop("model.norm.weight"))
    report = report_of(lambda: load_target(sharded))
    assert report.startswith("error[C009]") and "'model.norm.weight'" in report and SECOND in report


def test_stale_index_names_a_tensor_too_many(sharded: Path) -> None:
    _edit(sharded, lambda index: index["weight_map"].update({"model.layers.4.x": FIRST}))
    assert "'model.layers.4.x'" in report_of(lambda: load_target(sharded))


def test_tensor_in_two_shards(sharded: Path) -> None:
    weights = random_weights(TinyTarget())
    index = json.loads((sharded / INDEX).read_text())["weight_map"]
    chosen = {name: values for name, values in weights.items() if index[name] == SECOND}
    write_safetensors(sharded / SECOND, chosen | {"model.embed_tokens.weight": weights["model.embed_tokens.weight"]})
    report = report_of(lambda: load_target(sharded))
    assert report.startswith("error[C023]") and "'model.embed_tokens.weight'" in report


@pytest.mark.parametrize("weight_map", [None, [], "x", {}, {"a": 1}, {"a": None}, {"a": ["b"]}], ids=str)
def test_weight_map_of_the_wrong_kind(sharded: Path, weight_map: object) -> None:
    _edit(sharded, lambda index: index.update(weight_map=weight_map))
    assert codes_of(lambda: load_target(sharded)) == ["C009"]


def test_index_that_is_no_json(sharded: Path) -> None:
    (sharded / INDEX).write_text('{"weight_map": {"a": "b", "a": "c"}}')
    assert report_of(lambda: load_target(sharded)).startswith(f"error[C011]: {INDEX} has the key 'a' twice")


def test_too_many_shards(sharded: Path) -> None:
    _edit(sharded, lambda index: index.update(weight_map={str(i): f"{i}.safetensors" for i in range(5000)}))
    report = report_of(lambda: load_target(sharded))
    assert report.startswith("error[C009]") and "5000" in report and "4096" in report


def test_damage_in_every_shard_is_reported_at_once(sharded: Path) -> None:
    for name in (FIRST, SECOND):
        data = (sharded / name).read_bytes()
        (sharded / name).write_bytes(data[:-1])
    report = report_of(lambda: load_target(sharded))
    assert report.count("error[C003]") == 2 and FIRST in report and SECOND in report


def test_one_file_is_taken_before_an_index(sharded: Path) -> None:
    weights = random_weights(TinyTarget(seed=7))
    write_safetensors(sharded / "model.safetensors", weights)
    found = load_target(sharded).tensors["model.norm.weight"].read()
    np.testing.assert_array_equal(found, weights["model.norm.weight"])


def test_configuration_and_shards_are_reported_together(sharded: Path) -> None:
    (sharded / SECOND).unlink()
    config = json.loads((sharded / "config.json").read_text()) | {"num_hidden_layers": 0}
    write_json(sharded / "config.json", config)
    assert codes_of(lambda: load_target(sharded)) == ["C032", "C010"]


def test_trailing_bytes_of_a_shard(sharded: Path) -> None:
    with (sharded / SECOND).open("ab") as stream:
        stream.write(b"1234567")
    assert codes_of(lambda: load_target(sharded)) == ["C007"]
    assert len(load_target(sharded, allow_trailing=True).tensors) == 39


def test_many_shards(tmp_path: Path) -> None:
    folder = write_target(tmp_path, num_shards=39)
    shutil.copy(folder / "model-00001-of-00039.safetensors", folder / "unrelated.safetensors")
    assert len(load_target(folder).tensors) == 39
