# SPDX-License-Identifier: Apache-2.0
"""Numbers that no training can work with are refused, all at once."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from hspec_trt.errors import DrafterError, HspecError
from hspec_trt.training.options import LossMix, ShapeOptions, TrainOptions, check_options
from tests.support.training import OPTIONS, SHAPE

NAN = float("nan")
NUMBERS = [
    (config, field.name)
    for config in (SHAPE, OPTIONS, OPTIONS.mix)
    for field in fields(config)
    if str(field.type).split(" ")[0] in ("int", "float") and field.name != "mask_token_id"
]


def check(config: ShapeOptions | TrainOptions | LossMix) -> None:
    shape = config if isinstance(config, ShapeOptions) else SHAPE
    options = config if isinstance(config, TrainOptions) else OPTIONS
    check_options(shape, replace(options, mix=config) if isinstance(config, LossMix) else options)


def test_the_defaults_are_fine() -> None:
    check_options(ShapeOptions(mask_token_id=1), TrainOptions())


@pytest.mark.parametrize("value", [-1, NAN, 10.0**40])
@pytest.mark.parametrize(("config", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
def test_no_number_is_taken_as_it_comes(config: ShapeOptions | TrainOptions | LossMix, name: str, value: float) -> None:
    with pytest.raises(DrafterError, match=f"D224.*{name.replace('_', '-')}"):
        check(replace(config, **{name: value}))


@pytest.mark.parametrize("name", ["lr", "clip", "epochs", "muon_factor", "steps", "chunks_per_step", "full_every"])
def test_some_must_be_more_than_nothing(name: str) -> None:
    with pytest.raises(DrafterError, match="D224"):
        check(replace(OPTIONS, **{name: 0}))


def test_groups_of_mamba_heads_have_one_size() -> None:
    with pytest.raises(DrafterError, match=r"D224.*4 mamba heads in 3 groups"):
        check(replace(SHAPE, mamba_n_groups=3))


def test_faults_come_together() -> None:
    with pytest.raises(HspecError) as caught:
        check_options(replace(SHAPE, block_size=1, mamba_n_groups=0), replace(OPTIONS, lr=NAN))
    assert [fault.code for fault in caught.value.faults] == ["D224"] * 3
