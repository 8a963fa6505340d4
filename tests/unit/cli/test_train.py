# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt train``: options reach the run, faults become messages."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from hspec_trt.cli import main
from hspec_trt.training.options import ShapeOptions, TrainOptions
from tests.support.training import TARGET, write_data

OPTIONS = [
    *("--mask-token-id", "255", "--kv-layers", "2", "--fused-layers", "1,5", "--block-pattern", "mamba attention mlp"),
    *("--intermediate-size", "16", "--block-size", "4", "--draft-vocab-size", "60", "--mamba-num-heads", "4"),
    *("--mamba-head-dim", "8", "--mamba-n-groups", "2", "--markov-rank", "2", "--steps", "3", "--no-bfloat16"),
    *("--chunks-per-step", "3", "--anchors-per-chunk", "3", "--held-out", "0.3", "--ce-weight", "0.5"),
    *("--device", "cpu"),
]


def _run(folder: Path, *more: str) -> int:
    data = write_data(folder / "data.jsonl")
    command = ["train", "--target", str(TARGET), "--data", str(data), "--output", str(folder / "out"), *OPTIONS, *more]
    with pytest.raises(SystemExit) as ended:
        main(command)
    return int(ended.value.code or 0)


def test_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(tmp_path) == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["block_pattern"], config["latent_fusion_layer_ids"]) == (["mamba", "attention", "mlp"], [1, 5])
    assert config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 3
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.json", "model.safetensors", "training.png"}
    assert (tmp_path / "out-work" / "state.pt").exists()
    shown = capsys.readouterr()
    assert "accepted length" in shown.out
    assert "drafter written to" in shown.out
    assert "step 3/3" in shown.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--drafter-type", "eagle9"], "error[D222]"),
        (["--kv-layers", "9"], "error[D101]"),
        (["--mask-token-id", "999"], "error[D122]"),
        (["--cod-rate", "0.7"], "error[D223]"),
        (["--cod-rate", "0"], "error[D224]"),
        (["--cod-floor", "1.5"], "error[D224]"),
        (["--draft-vocab-size", "257"], "error[D224]: 257 tokens that can be drafted; needed: 1..256"),
        (["--steps", "0"], "error[D224]: --steps 0; needed: 1 to 2147483647"),
        (["--ce-weight", "-1"], "error[D224]: --ce-weight -1.0; needed: 0 to 1000000"),
    ],
)
def test_faults_are_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str) -> None:
    assert _run(tmp_path, *more) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "more",
    [
        ["--kv-layers", "a,b"],
        ["--block-pattern", "mamba dance mlp"],
        ["--optimizer", "sgd"],
        ["--device", "tpu"],
    ],
)
def test_bad_options_are_usage_errors(tmp_path: Path, more: list[str]) -> None:
    assert _run(tmp_path, *more) == 2


def test_a_gpu_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert _run(tmp_path, "--device", "cuda") == 2
    shown = capsys.readouterr().err
    assert "error[D226]" in shown
    assert "--device cuda" in shown
    assert "Leave --device out" in " ".join(shown.split())
    assert not (tmp_path / "out-work").exists()


def test_without_pytorch_the_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert _run(tmp_path) == 2
    assert "hspec_trt[train]" in capsys.readouterr().err


def test_every_option_of_the_dataclasses_can_be_set() -> None:
    from hspec_trt.cli.train import train_command

    names = {parameter.name for parameter in train_command.params}
    assert set(ShapeOptions.__dataclass_fields__) <= names
    assert set(TrainOptions.__dataclass_fields__) - {"mix"} <= names
