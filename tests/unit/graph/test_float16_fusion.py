# SPDX-License-Identifier: Apache-2.0
"""float16 engines whose ``fc`` gives more than float16 can hold: the norm after it must see the values themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hspec_trt.config.build import BuildConfig
from hspec_trt.dtypes import FLOAT16
from tests.support.golden_drafters import GoldenCase, load_case, pair_of
from tests.support.graph_engine import ArraySource, Engine, Feed, Pair, Row, write_engine
from tests.support.tolerance import LARGEST_FLOAT16, assert_close

CASES = [
    *("dflash_qwen3", "dspark_qwen3", "hspec_llama"),
    *("eagle3_llama", "eagle3_qwen3", "peagle_qwen3", "peagle_llama"),
]
FUSED = {"dflash": "C", "dspark": "C", "hspec": "z", "eagle3": "entries", "peagle": "entries"}
"""Probe of the first value that is small again, or (for the EAGLE family) of the stream that may stay large."""
PROMPT = [11, 200, 7, 45, 45, 90, 3]


def with_large_fc(case: GoldenCase) -> Pair:
    """Every fused state some million times larger."""
    pair = pair_of(case)
    tensors = dict(pair.drafter_tensors or {})
    tensors["fc.weight"] = ArraySource(tensors["fc.weight"].read() * np.float32(1e6))
    return replace(pair, drafter_tensors=tensors)


def probes(folder: Path, pair: Pair, dtype: str) -> dict[str, np.ndarray]:
    """The drafter's inner values after a prompt."""
    build = BuildConfig(page_size=16, dtype=dtype)  # type: ignore[arg-type]
    engine = Engine(write_engine(folder, pair, build, probes=True), pair, build, num_pages=4)
    out = engine.step([Row(PROMPT, pages=[2])], [Feed(PROMPT, num_verify=1, draft=True)])
    return {name.removeprefix("probe.drafter."): value for name, value in out.items() if "probe.drafter" in name}


@pytest.mark.parametrize("name", CASES)
def test_fc_beyond_float16(name: str, tmp_path: Path) -> None:
    pair = with_large_fc(load_case(name))
    narrow, wide = (probes(tmp_path / dtype, pair, dtype) for dtype in ("float16", "float32"))
    for probe, values in narrow.items():
        assert np.isfinite(values).all(), probe
    fused = FUSED[name.split("_")[0]]
    if "g" in wide:
        assert np.abs(wide["g"]).max() > LARGEST_FLOAT16
    assert_close(narrow[fused], wide[fused], FLOAT16, fused)
    logits = "logits" if "logits" in wide else "logits_base"
    assert_close(narrow[logits], wide[logits], FLOAT16, logits)
