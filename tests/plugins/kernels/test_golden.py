# SPDX-License-Identifier: Apache-2.0
"""Mamba2BlockScan, kernel and ONNX function, against golden mixers and scans, and against transformers' own code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers.models.mamba2 import modeling_mamba2

from build_scripts.gpu_check import table
from build_scripts.gpu_check.cases import Place, ScanCase, scan_inputs
from build_scripts.gpu_check.ops import ScanShape, ScanWeights
from build_scripts.gpu_check.runners import TritonRunner
from build_scripts.gpu_check.source_ops import SourceOps
from tests.plugins.kernels.onnx_function import run_function
from tests.support.tolerance import assert_close, assert_golden

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "mamba2_ops" / "vectors.safetensors"
MIXERS = {
    "m0": ScanShape(6, 16, 4, 2, 4, 8),
    "m1": ScanShape(4, 8, 8, 1, 4, 5),
    "m2": ScanShape(6, 16, 4, 2, 4, 1),
    "m3": ScanShape(4, 8, 4, 4, 4, 8),
}
OPS = SourceOps(TritonRunner())


@pytest.fixture(scope="module")
def vectors() -> dict[str, torch.Tensor]:
    return load_file(GOLDEN)


@pytest.mark.parametrize("name", MIXERS)
def test_golden_mixers(name: str, vectors: dict[str, torch.Tensor]) -> None:
    shape = MIXERS[name]
    case = {key.removeprefix(f"{name}."): value for key, value in vectors.items() if key.startswith(f"{name}.")}
    inner = shape.num_heads * shape.head_dim
    xbc = case["in_proj"][..., inner : -shape.num_heads].contiguous()
    dt = case["in_proj"][..., -shape.num_heads :].contiguous()
    weights = ScanWeights(
        case["weight.conv1d.weight"],
        case["weight.conv1d.bias"],
        case["weight.dt_bias"],
        case["weight.A_log"],
        case["weight.D"],
    )
    zeros = torch.zeros(xbc.shape[0], shape.num_heads, shape.head_dim, shape.state_size)
    state = case.get("initial_state", zeros)
    want = case["y"].flatten(2).numpy()
    assert_golden(OPS.mamba2_block_scan(shape, xbc, dt, weights, state).numpy(), want, "kernel")
    inputs = {"xbc": xbc, "dt": dt, **vars(weights), "state": state}
    assert_golden(run_function("Mamba2BlockScan", inputs, **vars(shape))[0].numpy(), want, "function")


def _before_silu(value: torch.Tensor) -> torch.Tensor:
    """v with silu(v) = value, float64, for |value| <= 0.2, by Newton's method."""
    v = 2.0 * value
    for _ in range(8):
        gate = torch.sigmoid(v)
        v = v - (v * gate - value) / (gate * (1.0 + v * (1.0 - gate)))
    return v


@pytest.mark.parametrize("index", range(24))
def test_golden_scans(index: int, vectors: dict[str, torch.Tensor]) -> None:
    """The golden scans start behind convolution and SiLU.

    y is linear in x, B, C, D and the state. So x, B and C are made so small that SiLU can be undone, D and the state
    are scaled to match, and y comes out scaled by a known factor.
    """
    case = {key.removeprefix(f"s{index}."): value.double() for key, value in vectors.items()}
    x, b, c = (case[name] for name in ("x", "B", "C"))
    by_x, by_b, by_c = (0.2 / float(part.abs().max()) for part in (x, b, c))
    parts = [(scale * part).flatten(2) for scale, part in ((by_x, x), (by_b, b), (by_c, c))]
    xbc = _before_silu(torch.cat(parts, dim=-1)).float().contiguous()
    rows, steps, heads, head_dim = x.shape
    groups, size = b.shape[2:]
    state = case.get("initial_state", torch.zeros(rows, heads, head_dim, size)) * (by_x * by_b)
    skip = case.get("D", torch.zeros(heads)) * (by_b * by_c)
    shape = ScanShape(heads, head_dim, size, groups, 1, steps)
    identity = (torch.ones(xbc.shape[-1], 1, 1), torch.zeros(xbc.shape[-1]))
    weights = ScanWeights(*identity, case["dt_bias"].float(), case["A_log"].float(), skip.float())
    dt, state = case["dt_raw"].float(), state.float().contiguous()
    want, scale = case["y"].flatten(2).numpy(), by_x * by_b * by_c
    got = OPS.mamba2_block_scan(shape, xbc, dt, weights, state)
    assert_golden((got.double() / scale).numpy(), want, "kernel")
    (function,) = run_function(
        "Mamba2BlockScan", {"xbc": xbc, "dt": dt, **vars(weights), "state": state}, **vars(shape)
    )
    assert_golden((function.double() / scale).numpy(), want, "function")


@pytest.mark.skipif(not hasattr(modeling_mamba2, "mamba2_chunk_scan"), reason="transformers before 5.24 has no such")
@pytest.mark.parametrize("case", table.ODD_SCAN, ids=lambda case: case.name.replace(" ", "-"))
def test_scan_of_transformers(case: ScanCase) -> None:
    shape = case.shape
    inputs = scan_inputs(case, Place(seed=3))
    got = OPS.mamba2_block_scan(shape, inputs.xbc, inputs.dt, inputs.weights, inputs.state)
    conv = torch.nn.functional.conv1d(
        inputs.xbc.transpose(1, 2), inputs.weights.conv_weight, inputs.weights.conv_bias,
        padding=shape.conv_kernel - 1, groups=inputs.xbc.shape[2],
    )  # fmt: skip
    mixed = torch.nn.functional.silu(conv[..., : shape.block_size]).transpose(1, 2)
    inner, bc = shape.num_heads * shape.head_dim, shape.n_groups * shape.state_size
    x, b, c = mixed.split([inner, bc, bc], dim=-1)
    result = modeling_mamba2.mamba2_chunk_scan(
        x.unflatten(-1, (shape.num_heads, -1)), inputs.dt, -torch.exp(inputs.weights.a_log),
        b.unflatten(-1, (shape.n_groups, -1)), c.unflatten(-1, (shape.n_groups, -1)), chunk_size=16,
        D=inputs.weights.d, dt_bias=inputs.weights.dt_bias, initial_states=inputs.state, dt_softplus=True,
    )  # fmt: skip
    want = result[0] if isinstance(result, tuple) else result
    assert_close(got.numpy(), want.reshape(got.shape).numpy(), what="kernel against transformers")
