# SPDX-License-Identifier: Apache-2.0
"""Mamba2BlockScan as a function: golden mixers, golden scans, and what must not happen at extreme steps."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.golden_pair import GOLDEN
from tests.support.op_body import Arrays, run_op
from tests.support.tolerance import assert_close, assert_golden

FOLDER = GOLDEN / "mamba2_ops"
META = json.loads((FOLDER / "meta.json").read_text())
SCANS = [case["id"] for case in META["scan_cases"]]
MIXERS = [case["id"] for case in META["mixer_cases"]]


@pytest.fixture(scope="module")
def vectors() -> Arrays:
    return load_file(FOLDER / "vectors.safetensors")


def part(vectors: Arrays, case: str) -> Arrays:
    return {name.split(".", 1)[1]: values for name, values in vectors.items() if name.startswith(f"{case}.")}


def attributes(x: np.ndarray, b: np.ndarray, conv_kernel: int) -> dict[str, int]:
    return {
        "num_heads": x.shape[2],
        "head_dim": x.shape[3],
        "state_size": b.shape[3],
        "n_groups": b.shape[2],
        "conv_kernel": conv_kernel,
        "block_size": x.shape[1],
    }


@pytest.mark.parametrize("case", MIXERS)
def test_golden_mixers(case: str, vectors: Arrays) -> None:
    v = part(vectors, case)
    x, heads = v["x"], v["x"].shape[2]
    inner = heads * x.shape[3]
    inputs = {
        "xbc": np.ascontiguousarray(v["in_proj"][..., inner:-heads]),
        "dt": np.ascontiguousarray(v["in_proj"][..., -heads:]),
        "conv_weight": v["weight.conv1d.weight"],
        "conv_bias": v["weight.conv1d.bias"],
        "dt_bias": v["weight.dt_bias"],
        "a_log": v["weight.A_log"],
        "d": v["weight.D"],
        "state": v.get("initial_state", np.zeros((*x.shape[:1], *x.shape[2:], v["B"].shape[3]), np.float32)),
    }
    out = run_op("Mamba2BlockScan", inputs, **attributes(x, v["B"], v["weight.conv1d.weight"].shape[2]))["output"]
    assert_golden(out, v["y"].reshape(out.shape), case)


def silu_inverse(y: np.ndarray) -> np.ndarray:
    """x with silu(x) = y for y >= 0, by Newton's method in float64."""
    x = y + 1.0
    for _ in range(60):
        sigmoid = 1.0 / (1.0 + np.exp(-x))
        x -= (x * sigmoid - y) / (sigmoid * (1.0 + x * (1.0 - sigmoid)))
    return x


@pytest.mark.parametrize("case", SCANS)
def test_golden_scans(case: str, vectors: Arrays) -> None:
    """A convolution that passes the last tap through turns the op into the bare scan (of shifted, positive inputs)."""
    v = part(vectors, case)
    x, b, c = (np.abs(v[name]).astype(np.float64) for name in ("x", "B", "C"))
    joined = np.concatenate([part.reshape(*part.shape[:2], -1) for part in (x, b, c)], axis=2)
    width = joined.shape[2]
    taps = np.zeros((width, 1, 4), np.float32)
    taps[:, 0, 3] = 1.0
    heads = x.shape[2]
    inputs = {
        "xbc": silu_inverse(joined).astype(np.float32),
        "dt": v["dt_raw"],
        "conv_weight": taps,
        "conv_bias": np.zeros(width, np.float32),
        "dt_bias": v["dt_bias"],
        "a_log": v["A_log"],
        "d": v.get("D", np.zeros(heads, np.float32)),
        "state": v.get("initial_state", np.zeros((*x.shape[:1], *x.shape[2:], b.shape[3]), np.float32)),
    }
    out = run_op("Mamba2BlockScan", inputs, **attributes(x, b, 4))["output"]
    assert_golden(out, recurrence(x, b, c, v["dt"], inputs).reshape(out.shape), case)


def recurrence(x: np.ndarray, b: np.ndarray, c: np.ndarray, dt: np.ndarray, inputs: Arrays) -> np.ndarray:
    """Step by step in float64: S = exp(dt A) S + dt x B, y = S C + D x."""
    decay = -np.exp(inputs["a_log"].astype(np.float64))
    state = inputs["state"].astype(np.float64).copy()
    heads, groups = x.shape[2], b.shape[2]
    of_head = np.arange(heads) // (heads // groups)
    y = np.empty_like(x)
    for t in range(x.shape[1]):
        step = dt[:, t].astype(np.float64)
        added = (step[..., None] * x[:, t])[..., None] * b[:, t, of_head][:, :, None, :]
        state = np.exp(step * decay)[..., None, None] * state + added
        y[:, t] = (state * c[:, t, of_head][:, :, None, :]).sum(-1) + inputs["d"][:, None] * x[:, t]
    return y


def test_the_recurrence_is_that_of_the_golden_scans(vectors: Arrays) -> None:
    v = part(vectors, "s10")
    inputs = {"a_log": v["A_log"], "state": v["initial_state"], "d": v["D"]}
    x, b, c = (v[name].astype(np.float64) for name in ("x", "B", "C"))
    assert_golden(recurrence(x, b, c, v["dt"], inputs), v["y"])


@pytest.mark.parametrize("step", [-60.0, 30.0, 200.0])
def test_extreme_steps_stay_finite(step: float) -> None:
    rng = np.random.default_rng(0)
    heads, dim, size, block = 2, 4, 3, 8
    inputs = {
        "xbc": rng.normal(size=(1, block, heads * dim + 2 * size)).astype(np.float32),
        "dt": np.full((1, block, heads), step, np.float32),
        "conv_weight": rng.normal(size=(heads * dim + 2 * size, 1, 4)).astype(np.float32),
        "conv_bias": np.zeros(heads * dim + 2 * size, np.float32),
        "dt_bias": np.zeros(heads, np.float32),
        "a_log": np.log([1.0, 16.0]).astype(np.float32),
        "d": np.ones(heads, np.float32),
        "state": rng.normal(size=(1, heads, dim, size)).astype(np.float32),
    }
    attrs = {"num_heads": heads, "head_dim": dim, "state_size": size, "n_groups": 1, "conv_kernel": 4}
    out = run_op("Mamba2BlockScan", inputs, **attrs, block_size=block)["output"]
    assert np.isfinite(out).all()
    shorter = {name: values[:, :5] if name in ("xbc", "dt") else values for name, values in inputs.items()}
    early = run_op("Mamba2BlockScan", shorter, **attrs, block_size=5)["output"]
    assert_close(early, out[:, :5], what="the first slots do not depend on the later ones")


def test_rates_stored_in_bfloat16_do_not_drift() -> None:
    """Case C17: A = -exp(float32(A_log)), softplus in float32: 512 steps against float64."""
    rng = np.random.default_rng(1)
    heads, dim, size, block = 4, 2, 3, 512
    width = heads * dim + 2 * size

    def stored(values: np.ndarray) -> np.ndarray:
        return values.astype(ml_dtypes.bfloat16).astype(np.float32)

    taps = np.zeros((width, 1, 4), np.float32)
    taps[:, 0, 3] = 1.0
    joined = rng.uniform(0.1, 1.0, (1, block, width))
    inputs = {
        "xbc": silu_inverse(joined).astype(np.float32),
        "dt": rng.normal(-4.0, 1.0, (1, block, heads)).astype(np.float32),
        "conv_weight": taps,
        "conv_bias": np.zeros(width, np.float32),
        "dt_bias": stored(rng.normal(size=heads)),
        "a_log": stored(np.log([0.02, 0.3, 1.0, 16.0])),  # the first forgets hardly anything in 512 steps
        "d": np.zeros(heads, np.float32),
        "state": rng.normal(size=(1, heads, dim, size)).astype(np.float32),
    }
    sizes = {"num_heads": heads, "head_dim": dim, "state_size": size, "n_groups": 1, "conv_kernel": 4}
    out = run_op("Mamba2BlockScan", inputs, **sizes, block_size=block)["output"].reshape(1, block, heads, dim)
    x, b, c = np.split(joined, [heads * dim, heads * dim + size], axis=2)
    raw = inputs["dt"].astype(np.float64) + inputs["dt_bias"]
    parts = (x.reshape(1, block, heads, dim), b[:, :, None, :], c[:, :, None, :], np.logaddexp(0.0, raw))
    exact = recurrence(*parts, inputs)
    assert np.abs(out - exact).max() / np.abs(exact).max() < 1e-4
    # A rate that is rounded after its exponential, as in low precision, would show.
    wrong = inputs | {"a_log": np.log(stored(np.exp(inputs["a_log"])))}
    assert np.abs(recurrence(*parts, wrong) - exact).max() / np.abs(exact).max() > 1e-4


def test_no_rows() -> None:
    inputs = {
        "xbc": np.zeros((0, 3, 14), np.float32),
        "dt": np.zeros((0, 3, 2), np.float32),
        "conv_weight": np.ones((14, 1, 4), np.float32),
        "conv_bias": np.ones(14, np.float32),
        "dt_bias": np.ones(2, np.float32),
        "a_log": np.ones(2, np.float32),
        "d": np.ones(2, np.float32),
        "state": np.zeros((0, 2, 4, 3), np.float32),
    }
    sizes = {"num_heads": 2, "head_dim": 4, "state_size": 3, "n_groups": 1, "conv_kernel": 4, "block_size": 3}
    assert run_op("Mamba2BlockScan", inputs, **sizes)["output"].shape == (0, 3, 8)
