# SPDX-License-Identifier: Apache-2.0
"""What runs on a GPU machine, run here small: the check's report and status, the benchmark, the library's interface."""

from __future__ import annotations

import os
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

    monkeypatch.setattr(runners, "choose_ops", lambda library, cpu, poison: Wrong(TritonRunner()))
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


@pytest.fixture
def sanitizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that notes its arguments and environment, and finds a fault with racecheck."""
    program, notes = tmp_path / "compute-sanitizer", tmp_path / "notes"
    program.write_text(f'#!/bin/sh\necho "$PYTORCH_NO_CUDA_MEMORY_CACHING $*" >> {notes}\n[ "$2" != racecheck ]\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return notes


def test_sanitizer_repeats_the_run_with_the_odd_shapes(sanitizer: Path) -> None:
    assert gpu_check.main(["--sanitize", "--seed", "4", "--only", "splits", "--library", "a.so"]) == 1
    runs = [line.split() for line in sanitizer.read_text().splitlines()]
    assert [run[:3] for run in runs] == [["1", "--tool", tool] for tool in gpu_check.TOOLS]
    for run in runs:
        options = gpu_check.parser().parse_args(run[run.index("build_scripts.gpu_check") + 1 :])
        assert (options.sanitize, options.rounds, options.seed, options.only) == (False, 0, 4, "splits")
        assert options.library == Path("a.so") and options.no_poison == (run[2] in ("memcheck", "initcheck"))
        odd, all_ = (list(gpu_check.checks_of(one)) for one in (options, gpu_check.parser().parse_args([])))
        assert 0 < len(odd) < len(all_)


def test_sanitizer_runs_the_tools_that_are_asked_for(sanitizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_check.main(["--sanitize", "--tools", "synccheck,memcheck"]) == 0
    assert [line.split()[2] for line in sanitizer.read_text().splitlines()] == ["synccheck", "memcheck"]
    with pytest.raises(SystemExit, match="no tool 'leakcheck'"):
        gpu_check.main(["--sanitize", "--tools", "memcheck,leakcheck"])
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    with pytest.raises(SystemExit, match="not on PATH"):
        gpu_check.main(["--sanitize"])


def test_checks_see_keys_that_were_not_appended() -> None:
    class Lazy(SourceOps):
        def append_kv(self, shape, step, key, value, kv_pages):  # type: ignore[no-untyped-def]
            super().append_kv(shape, step, key, value.flip(0), kv_pages)

    outcome = checks.check_append(Lazy(TritonRunner()), PagedCase("small", ((3, 2),)), Place())
    assert not outcome.passed and "pages differ" in outcome.fault


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


def test_library_appends_in_place(stub: Path) -> None:
    case = PagedCase("stub", ((5, 2),), 4, 2, 64, 16)
    inputs = cases.paged_inputs(case, Place(), poison=1.0)
    pages = inputs.kv_pages.clone()
    with pytest.raises(LibraryError, match="AppendKv 2 64 16 ranks 5 2 1 in place 1"):
        LibraryOps(stub).append_kv(case.shape, inputs.step, inputs.key, inputs.value, pages)
    assert torch.equal(pages, inputs.kv_pages)


@pytest.mark.parametrize("window", [0, 9], ids=["before", "after"])
def test_a_step_over_the_workspace_is_seen(window: int, stub: Path) -> None:
    """One byte is written before or after it; where time is measured nobody looks."""
    inputs = cases.shared_inputs(case := cases.SharedCase("stub", (5, 3), window=window), Place())
    tensors = (inputs.query, inputs.key, inputs.value, inputs.kv_pages, inputs.page_table, inputs.prefix_lens)
    with pytest.raises(LibraryError, match="SharedKvAttention wrote outside its workspace of 19 bytes"):
        LibraryOps(stub).shared_kv_attention(case.shape, *tensors, causal=True, no_context=False)
    LibraryOps(stub, poison=False).shared_kv_attention(case.shape, *tensors, causal=True, no_context=False)


def test_what_the_library_refuses_is_a_failure_of_the_report(stub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--library", str(stub), "--cpu", "--only", "append_kv one head"]) == 1
    assert "FAIL append_kv one head [float32]" in capsys.readouterr().out


def test_library_writes_into_the_output(stub: Path) -> None:
    case = cases.ScanCase("stub", ScanShape(2, 8, 4, 1, 4, 3))
    inputs = cases.scan_inputs(case, Place(dtype=torch.float16))
    got = LibraryOps(stub).mamba2_block_scan(case.shape, inputs.xbc, inputs.dt, inputs.weights, inputs.state)
    assert got.shape == (2, 3, 16)
    assert bool((got.view(torch.uint8) == 4).all())
