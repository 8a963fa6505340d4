# SPDX-License-Identifier: Apache-2.0
"""What runs on a GPU machine, run here small: the check's report and status, the benchmark, the library's interface."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_kernels, gpu_kernels_cases
from build_scripts.gpu_check import __main__ as gpu_check
from build_scripts.gpu_check import cases, checks, reference, runners
from build_scripts.gpu_check.cases import PagedCase, Place, SampleCase
from build_scripts.gpu_check.library_ops import LibraryError, LibraryOps
from build_scripts.gpu_check.ops import AttentionShape, ScanShape
from build_scripts.gpu_check.runners import TritonRunner
from build_scripts.gpu_check.source_ops import SourceOps
from tests.support.tolerance import assert_close

ROOT = Path(__file__).resolve().parents[3]


def test_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--cpu", "--rounds", "2", "--seed", "3", "--only", "window of one"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "seed 3" and printed[-1] == "all checks passed"
    assert sum(line.startswith("ok   paged_attention window of one [") for line in printed) == 4  # rounds x types


def test_a_wrong_kernel_fails_the_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def short_window(ops: SourceOps, shape: AttentionShape, *tensors: object, **options: object) -> torch.Tensor:
        return SourceOps(ops.run).paged_attention(replace(shape, window=shape.window + 1), *tensors, **options)  # type: ignore[arg-type]

    class Wrong(SourceOps):
        paged_attention = short_window  # type: ignore[assignment]

    monkeypatch.setattr(runners, "choose_ops", lambda library, cpu: Wrong(TritonRunner()))
    assert gpu_check.main(["--cpu", "--rounds", "1", "--only", "window of one"]) == 1
    assert "FAIL paged_attention window of one" in capsys.readouterr().out


def test_checks_see_writes_where_none_belong() -> None:
    class Leaky(SourceOps):
        def paged_attention(self, shape, step, query, key, value, kv_pages, **options):  # type: ignore[no-untyped-def]
            result = super().paged_attention(shape, step, query, key, value, kv_pages, **options)
            kv_pages[-1, 0, 0, 0, 0] = 5.0
            return result

    outcome = checks.check_paged(Leaky(TritonRunner()), PagedCase("small", ((3, 1),)), Place())
    assert not outcome.passed and "pages differ" in outcome.fault


def test_checks_see_a_token_that_is_not_the_best() -> None:
    class Second(SourceOps):
        def sample_tokens(self, logits, *rest):  # type: ignore[no-untyped-def]
            ids, logprobs, finite = super().sample_tokens(logits, *rest)
            return (ids + 1) % logits.shape[1], logprobs, finite

    case = SampleCase("small", (cases.RowOptions(), cases.RowOptions(1.0)), vocab_size=20)
    assert "was drawn" in checks.check_sample(Second(TritonRunner()), case, Place()).fault


def test_without_a_gpu_the_check_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(SystemExit, match="no CUDA device"):
        gpu_check.main(["--rounds", "1"])


def test_sanitizer_repeats_the_run_with_the_odd_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: f"/opt/{tool}")
    command = gpu_check.sanitized(["--sanitize", "--seed", "4"])
    assert command[:3] == ["/opt/compute-sanitizer", "--error-exitcode", "1"]
    assert "--sanitize" not in command and command[-2:] == ["--rounds", "0"]
    odd = [case for *_, case in gpu_check.checks_of(gpu_check.parser().parse_args(command[6:]))]
    assert len(odd) < len(list(gpu_check.checks_of(gpu_check.parser().parse_args([]))))
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    with pytest.raises(SystemExit, match="not on PATH"):
        gpu_check.sanitized(["--sanitize"])


def test_benchmark_prints_a_line_for_each_subject(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_kernels.main(["--cpu", "--runs", "1"]) == 0
    printed = capsys.readouterr().out
    for name in ("device copy", "PagedAttention", "torch SDPA", "SharedKvAttention", "Mamba2BlockScan", "top-k"):
        assert name in printed


def test_bytes_count_each_key_and_value_once() -> None:
    shape = AttentionShape(32, 8, 128, 64, 1.0)
    assert gpu_kernels_cases.attention_bytes(shape, keys=1, queries=0, itemsize=2) == 2 * 8 * 128 * 2
    line = gpu_kernels.Line("x", microseconds=2.0, nbytes=4_000)
    assert line.bandwidth == pytest.approx(2.0)


def test_torch_peer_computes_the_same() -> None:
    case = gpu_kernels_cases.paged(small=True)[0]
    inputs = cases.paged_inputs(case, Place(), poison=0.0)
    pages = inputs.kv_pages
    ours = SourceOps(TritonRunner()).paged_attention(
        case.shape, inputs.step, inputs.query, inputs.key, inputs.value, pages, verify_width=8
    )
    work = gpu_kernels_cases.peers.torch_sdpa(case.shape, inputs)
    assert work is not None
    peer = work().transpose(1, 2).flatten(0, 1)  # type: ignore[attr-defined]
    assert_close(ours.numpy(), peer.numpy(), what="torch SDPA")
    plain = reference.paged_attention(case.shape, inputs.step, inputs.query, pages, torch.float32)
    assert_close(ours.numpy(), plain.numpy(), what="reference")


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stub") / "libstub.so"
    source = Path(__file__).with_name("stub_library.c")
    include = ROOT / "plugins" / "include"
    subprocess.run(["gcc", "-shared", "-fPIC", f"-I{include}", "-o", str(path), str(source)], check=True)
    return path


def test_library_gets_attributes_shapes_types_and_workspace(stub: Path) -> None:
    case = PagedCase("stub", ((5, 2),), 4, 2, 64, 16, window=9)
    inputs = cases.paged_inputs(case, Place(dtype=torch.bfloat16))
    with pytest.raises(LibraryError) as failure:
        LibraryOps(stub).paged_attention(
            case.shape, inputs.step, inputs.query, inputs.key, inputs.value, inputs.kv_pages, verify_width=8
        )
    pool = inputs.kv_pages.shape[0]
    assert str(failure.value) == (
        f"PagedAttention heads 4 scale 0.125 window 9 dtypes 2 3 dims {pool} 2 bytes {2 + 14} first 255 stream 0"
    )


def test_library_writes_into_the_output(stub: Path) -> None:
    case = cases.ScanCase("stub", ScanShape(2, 8, 4, 1, 4, 3))
    inputs = cases.scan_inputs(case, Place(dtype=torch.float16))
    got = LibraryOps(stub).mamba2_block_scan(case.shape, inputs.xbc, inputs.dt, inputs.weights, inputs.state)
    assert got.shape == (2, 3, 16)
    assert bool((got.view(torch.uint8) == 4).all())
