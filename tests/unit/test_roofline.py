# SPDX-License-Identifier: Apache-2.0
"""Speed and memory on paper: hand-counted cases, and the command that prints them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

from hspec_trt.checkpoint.drafter import load_drafter
from hspec_trt.checkpoint.target import load_target
from hspec_trt.cli.plan import plan_command
from hspec_trt.config.build import BuildConfig
from hspec_trt.config.drafter import DrafterConfig, HSpecConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.dtypes import BFLOAT16
from hspec_trt.errors import BuildError
from hspec_trt.memory import draft_context_bytes
from hspec_trt.pipeline import build
from hspec_trt.roofline import Gpu, StepBound, drafter_work, step_bound, target_work
from tests.support.golden_drafters import GOLDEN, target_folder

SLOW = Gpu("slow", memory=1 << 30, bandwidth=1e6, flops=1e9, sm=80)


def pair(case: str) -> tuple[TargetConfig, DrafterConfig]:
    target = load_target(target_folder(case))
    return target.config, load_drafter(GOLDEN / case / "drafter", target).config


def test_a_target_reads_its_weights_once_and_its_pages_for_every_row() -> None:
    target, _ = pair("hspec_qwen3")
    arrays = load_file(target_folder("hspec_qwen3") / "model.safetensors")
    matrices = sum(array.size for array in arrays.values())
    head = np.prod(arrays["model.embed_tokens.weight"].shape)
    if "lm_head.weight" in arrays:
        matrices -= head  # the embedding is looked up, not multiplied
    work = target_work(target, BFLOAT16, context=10, tokens=1)
    assert work.parameters == matrices
    kv = 10 * target.num_layers * 2 * target.num_kv_heads * target.head_dim * 2
    assert work.seconds(SLOW, rows=3) == pytest.approx((2 * matrices + 3 * kv) / 1e6)


def test_arithmetic_bounds_a_wide_step() -> None:
    target, drafter = pair("hspec_qwen3")
    slow_maths = replace(SLOW, flops=1e3)
    bound = step_bound(slow_maths, target, drafter, BFLOAT16, num_drafts=3, context=1, rows=2)
    parameters = target_work(target, BFLOAT16, 1, 1).parameters
    assert bound.off == pytest.approx(2 * parameters * 2 / 1e3)
    assert bound.target == pytest.approx(4 * bound.off)


def test_windows_bound_what_a_draft_pass_reads() -> None:
    _, drafter = pair("hspec_qwen3")
    assert isinstance(drafter, HSpecConfig) and drafter.attn_windows
    line = 2 * drafter.num_kv_heads * drafter.head_dim * 2
    count = len(drafter.attn_windows)
    assert draft_context_bytes(replace(drafter, attn_windows=(4,) * count), BFLOAT16, 100) == count * 4 * line
    assert draft_context_bytes(replace(drafter, attn_windows=(0,) * count), BFLOAT16, 100) == count * 100 * line


def test_serial_drafters_pay_for_every_pass() -> None:
    _, serial = pair("eagle3_llama")
    work = drafter_work(serial, BFLOAT16, 8)
    assert (work.passes, work.tokens) == (serial.num_drafts, 1)
    once = (work.weight_bytes + work.kv_bytes) / 1e6
    assert work.seconds(SLOW, 1) == pytest.approx(serial.num_drafts * once)


def test_break_even_is_the_price_of_a_step_in_plain_steps() -> None:
    assert StepBound(rows=1, off=2.0, target=2.5, drafter=0.5).break_even == 1.5


def test_the_command_counts_what_a_build_writes(tmp_path: Path) -> None:
    folder = target_folder("hspec_qwen3")
    arguments = ["--target", str(folder), "--drafter", str(GOLDEN / "hspec_qwen3" / "drafter"), "--gpu", "h100"]
    result = CliRunner().invoke(plan_command, [*arguments, "--context", "100", "--json"])
    assert result.exit_code == 0, result.output
    plan = json.loads(result.output)
    report = build(folder, GOLDEN / "hspec_qwen3" / "drafter", tmp_path / "engine", BuildConfig())
    assert plan["build"]["weight_bytes"] == pytest.approx(report.weight_bytes / 2, rel=0.02)  # bfloat16, float32
    assert plan["requests"]["100"] > plan["requests"][str(load_target(folder).config.max_position)] > 0


def test_a_context_that_the_target_cannot_have() -> None:
    arguments = ["--target", str(target_folder("hspec_qwen3")), "--gpu", "h100", "--context", "99999999"]
    with pytest.raises(BuildError, match=r"B027.*--context is 99999999"):
        plan_command.main(arguments, standalone_mode=False)
