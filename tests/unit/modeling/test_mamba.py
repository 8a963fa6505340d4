# SPDX-License-Identifier: Apache-2.0
"""Scan and mixer against the golden operator vectors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor

from hspec_trt.modeling import mamba
from hspec_trt.modeling.mamba import Mamba2Mixer, block_scan, kernel_scan
from tests.support.golden import GOLDEN, vectors

META = json.loads((GOLDEN / "mamba2_ops" / "meta.json").read_text())
TOLERANCE = 2e-4


def _tensors(prefix: str) -> dict[str, torch.Tensor]:
    found = vectors("mamba2_ops").items()
    return {name.removeprefix(prefix): value for name, value in found if name.startswith(prefix)}


@pytest.mark.parametrize("case", META["scan_cases"], ids=lambda case: case["id"])
def test_scan(case: dict[str, object]) -> None:
    given = {
        name.split(".")[1]: value for name, value in vectors("mamba2_ops").items() if name.startswith(f"{case['id']}.")
    }
    y, state = block_scan(
        given["x"],
        given["dt"],
        given["A_log"],
        given["B"],
        given["C"],
        d=given.get("D"),
        state=given.get("initial_state"),
    )
    torch.testing.assert_close(y, given["y"], atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(state, given["final_state"], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("case", META["mixer_cases"], ids=lambda case: case["id"])
def test_mixer(case: dict[str, int]) -> None:
    prefix = f"{case['id']}."
    given = {
        name.removeprefix(prefix): value for name, value in vectors("mamba2_ops").items() if name.startswith(prefix)
    }
    mixer = Mamba2Mixer(
        case["hidden"],
        num_heads=case["heads"],
        head_dim=case["head_dim"],
        d_state=case["d_state"],
        n_groups=case["groups"],
        conv_kernel=case["conv_kernel"],
        norm_eps=1e-5,
    )
    weights = {name.removeprefix("weight."): value for name, value in given.items() if name.startswith("weight.")}
    mixer.load_state_dict(weights)
    with torch.no_grad():
        out = mixer(given["u"], given.get("initial_state"))
    torch.testing.assert_close(out, given["out"], atol=TOLERANCE, rtol=0)


def test_a_block_in_two_halves_is_the_same_block() -> None:
    """The state that the scan hands back is the one that the next tokens need."""
    torch.manual_seed(0)
    x, dt = torch.randn(2, 8, 6, 4), torch.rand(2, 8, 6)
    b, c, a_log = torch.randn(2, 8, 3, 2), torch.randn(2, 8, 3, 2), torch.rand(6)
    whole, final = block_scan(x, dt, a_log, b, c, d=None, state=None)
    first, state = block_scan(x[:, :5], dt[:, :5], a_log, b[:, :5], c[:, :5], d=None, state=None)
    second, last = block_scan(x[:, 5:], dt[:, 5:], a_log, b[:, 5:], c[:, 5:], d=None, state=state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, atol=1e-5, rtol=0)
    torch.testing.assert_close(last, final, atol=1e-5, rtol=0)


def test_large_steps_do_not_overflow() -> None:
    """Above the diagonal the exponent is positive: it must be masked before exp."""
    x = torch.ones(1, 8, 1, 1)
    y, _ = block_scan(x, torch.full((1, 8, 1), 100.0), torch.tensor([2.0]), x, x, d=None, state=torch.ones(1, 1, 1, 1))
    assert torch.isfinite(y).all()


def chunk_scan_double(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    initial_states: Tensor | None = None,
    *,
    return_final_states: bool = False,
) -> tuple[Tensor, Tensor]:
    """mamba_ssm's `mamba_chunk_scan_combined` in plain steps, with the shapes that it asserts.

    x ``[batch, seqlen, heads, headdim]``, dt ``[batch, seqlen, heads]``, A ``[heads]``, negative, B and C
    ``[batch, seqlen, groups, dstate]``, D ``[heads]``, states ``[batch, heads, headdim, dstate]``.
    """
    batch, length, heads, head_dim = x.shape
    groups, size = b.shape[2:]
    assert heads % groups == 0
    assert dt.shape == (batch, length, heads)
    assert a.shape == (heads,)
    assert (a < 0).all()
    assert b.shape == c.shape == (batch, length, groups, size)
    assert chunk_size >= 16
    assert chunk_size & (chunk_size - 1) == 0
    assert D is None or D.shape == (heads,)
    assert initial_states is None or initial_states.shape == (batch, heads, head_dim, size)
    assert initial_states is None or initial_states.is_contiguous()
    assert return_final_states
    assert {part.dtype for part in (x, dt, a, b, c)} == {torch.float32}
    state = x.new_zeros(batch, heads, head_dim, size) if initial_states is None else initial_states
    rows = []
    for t in range(length):
        b_t, c_t = (part[:, t].repeat_interleave(heads // groups, dim=1) for part in (b, c))
        decay = torch.exp(dt[:, t] * a)[..., None, None]
        state = decay * state + torch.einsum("bh,bhp,bhn->bhpn", dt[:, t], x[:, t], b_t)
        rows.append(torch.einsum("bhpn,bhn->bhp", state, c_t))
    y = torch.stack(rows, 1)
    return y if D is None else y + D[:, None] * x, state


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The double in the place of mamba_ssm."""
    for name in ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton", "mamba_ssm.ops.triton.ssd_combined"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    module = sys.modules["mamba_ssm.ops.triton.ssd_combined"]
    monkeypatch.setattr(module, "mamba_chunk_scan_combined", chunk_scan_double, raising=False)
    mamba._chunk_scan.cache_clear()
    yield
    mamba._chunk_scan.cache_clear()


def scan_inputs(length: int) -> dict[str, Tensor]:
    """Six heads in two groups, three states."""
    made = torch.Generator().manual_seed(length)
    shapes = {"x": (5, length, 6, 4), "b": (5, length, 2, 3), "c": (5, length, 2, 3), "state": (5, 6, 4, 3)}
    found = {name: torch.randn(shape, generator=made) for name, shape in shapes.items()}
    found |= {"d": torch.randn(6, generator=made), "a_log": torch.randn(6, generator=made)}
    return found | {"dt": torch.rand(5, length, 6, generator=made)}


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("length", [1, 8, 19])
@pytest.mark.parametrize("without", ["", "d", "state"])
def test_kernels_get_what_our_own_scan_gets(length: int, without: str) -> None:
    """Values, final states and all gradients are equal."""
    results = {}
    for scan in (block_scan, kernel_scan):
        given = {name: value.clone().requires_grad_() for name, value in scan_inputs(length).items()}
        parts = (given[name] for name in ("x", "dt", "a_log", "b", "c"))
        d, state = (None if name == without else given[name] for name in ("d", "state"))
        y, final = scan(*parts, d=d, state=state)
        (y.square().sum() + final.sin().sum()).backward()  # type: ignore[no-untyped-call]
        grads = {name: value.grad for name, value in given.items() if name != without}
        assert all(grad is not None for grad in grads.values())
        results[scan] = {"y": y, "final": final, **grads}
    torch.testing.assert_close(results[kernel_scan], results[block_scan], atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("kernels")
def test_the_mixer_scans_by_kernels_on_cuda_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mamba.uses_kernels(torch.device("cuda"))
    assert not mamba.uses_kernels(torch.device("cpu"))
    mixer = Mamba2Mixer(16, num_heads=4, head_dim=4, d_state=3, n_groups=2, conv_kernel=4, norm_eps=1e-5)
    u, state = torch.randn(3, 8, 16), torch.randn(3, 4, 4, 3)
    own = mixer(u, state)
    monkeypatch.setattr(mamba, "block_scan", None)
    monkeypatch.setattr(mamba, "uses_kernels", lambda device: device == u.device)
    torch.testing.assert_close(mixer(u, state), own, atol=1e-5, rtol=1e-4)


def test_without_mamba_ssm_our_own_scan_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mamba_ssm", None)
    mamba._chunk_scan.cache_clear()
    assert not mamba.uses_kernels(torch.device("cuda"))
    mamba._chunk_scan.cache_clear()
