# SPDX-License-Identifier: Apache-2.0
"""Ahead-of-time compilation without a GPU: binary interface, reproducibility, cache, and the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from build_scripts import kernel_compiler
from build_scripts.kernel_compiler import Job, jobs_for
from build_scripts.kernel_table import CompiledKernel
from plugins.kernels.catalog import KERNELS
from plugins.kernels.variants import SHARED_BYTES, Variant

ROOT = Path(__file__).resolve().parents[3]
# One of each shape of interface: typed with integers, scalars in the middle, and untyped.
NEEDS = (
    "append:float16,head_dim=64,page_size=16",
    "scan:bfloat16,num_heads=2,head_dim=16,state_size=4,n_groups=1,conv_kernel=2,block_size=2",
)
PARAM_TYPES = {"i32": ".u32", "f32": ".b32"}


def _compile(root: Path, output: Path, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = root / "build_scripts" / "compile_kernels.py"
    command = [sys.executable, str(script), "--output", str(output), "--cache", str(cache), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=output.parent, env=dict(os.environ), check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated files of the smallest kernels, for two SMs of different instruction sets."""
    folder = tmp_path_factory.mktemp("built")
    needs = [part for need in NEEDS for part in ("--need", need)]
    result = _compile(ROOT, folder / "generated", folder / "cache", "--sm", "80,90", *needs)
    assert result.returncode == 0, result.stderr
    assert "6 kernels" in result.stdout
    return folder


def _code(folder: Path) -> list[tuple[dict[str, object], bytes]]:
    rows = json.loads((folder / "generated" / "kernels.json").read_text())
    blob, offset, result = (folder / "generated" / "kernels.bin").read_bytes(), 0, []
    for row in rows:
        result.append((row, blob[offset : offset + row["bytes"]]))
        offset += -(-row["bytes"] // 64) * 64
    return result


def test_cubins_and_ptx_hold_their_symbol(built: Path) -> None:
    for row, code in _code(built):
        assert row["spill_bytes"] == 0
        assert str(row["symbol"]).encode() in code
        if row["ptx"]:
            assert row["sm"] == 80 and b".version 8.0\n.target sm_80\n" in code and code.endswith(b"\0")
        else:
            assert code.startswith(b"\x7fELF")


def _kernels_with_the_arguments_of_the_catalog(folder: Path) -> set[str]:
    """Names of the compiled kernels, after a look at the parameters of their PTX."""
    seen = set()
    for row, code in _code(folder):
        if not row["ptx"]:
            continue
        found = re.findall(r"\.param (\.\w+)(?: \.ptr \.\w+ \.align \d+)? \w+_param_\d+", code.decode())
        spec = KERNELS[str(row["kernel"])]
        wanted = [PARAM_TYPES.get(arg.type, ".u64") for arg in spec.args] + [".u64", ".u64"]
        assert [kind.replace(".f32", ".b32") for kind in found] == wanted
        seen.add(spec.name)
    return seen


def test_ptx_takes_the_arguments_of_the_catalog_then_two_scratch_pointers(built: Path) -> None:
    assert _kernels_with_the_arguments_of_the_catalog(built) == {"append_kv", "mamba2_block_scan"}


@pytest.mark.long
def test_ptx_of_every_kernel_takes_the_arguments_of_the_catalog(tmp_path: Path) -> None:
    needs = (
        *NEEDS,
        "paged:float16,head_dim=16,group=1,page_size=16,verify_width=1",
        "shared:float16,head_dim=16,group=1,page_size=16,block=1,causal=1",
        "sample:vocab_size=16",
    )
    arguments = [part for need in needs for part in ("--need", need)]
    result = _compile(ROOT, tmp_path / "generated", tmp_path / "cache", "--sm", "80", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    assert _kernels_with_the_arguments_of_the_catalog(tmp_path) == set(KERNELS)


def test_another_checkout_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    for name in ("plugins/kernels", "build_scripts", "hspec_trt"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    needs = [part for need in NEEDS for part in ("--need", need)]
    result = _compile(copy, tmp_path / "generated", tmp_path / "cache", "--sm", "80,90", "--processes", "1", *needs)
    assert result.returncode == 0, result.stderr
    for path in (built / "generated").iterdir():
        assert path.read_bytes() == (tmp_path / "generated" / path.name).read_bytes(), path.name


def test_cache_is_by_content_and_serves_a_second_run(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_for([Variant("append_kv", "float16", (64, 0, 16))], [80, 90])
    assert len(jobs) == 3

    def fail(job: Job) -> CompiledKernel:
        raise AssertionError(f"{job} was compiled again")

    monkeypatch.setattr(kernel_compiler, "_compile", fail)
    kernels = list(kernel_compiler.compile_all(jobs, built / "cache", 1))
    assert [(kernel.sm, kernel.ptx) for kernel in kernels] == [(80, False), (90, False), (80, True)]
    monkeypatch.setattr(kernel_compiler, "_CACHE_FORMAT", 99)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET"):
        kernel_compiler.compile_job(jobs[0], built / "cache", kernel_compiler.source_hash())


def test_spilling_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from build_scripts import compile_kernels

    spilling = CompiledKernel("append_kv", "float16", (64, 0, 16), 80, False, "append_kv", 128, 0, 255, 8, b"x")
    monkeypatch.setattr(compile_kernels, "compile_all", lambda jobs, cache, processes: iter([spilling] * len(jobs)))
    status = compile_kernels.main(["--need", NEEDS[0], "--output", str(tmp_path / "generated")])
    assert status == 1
    assert "spill registers" in capsys.readouterr().err
    assert not (tmp_path / "generated").exists()


def test_faults_of_all_needs_are_told_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from build_scripts import compile_kernels

    wrong = ["paged:float32,head_dim=64,group=1,page_size=48,verify_width=8", "scan:bfloat16,num_heads=4", "drum:x"]
    arguments = [part for need in wrong for part in ("--need", need)]
    assert compile_kernels.main([*arguments, str(tmp_path / "no_engine"), "--output", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    for part in ("type float32", "page_size 48", "num_heads", "'drum:x'", "no_engine"):
        assert part in message


def test_without_triton_the_fix_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from build_scripts import compile_kernels

    monkeypatch.setattr(compile_kernels, "find_spec", lambda name: None)
    assert compile_kernels.main(["--need", NEEDS[0], "--output", str(tmp_path)]) == 2
    assert "error[B062]" in (message := capsys.readouterr().err) and "hspec_trt[kernels]" in message


def test_every_sm_has_a_limit_of_shared_memory() -> None:
    assert set(kernel_compiler.SMS) == set(SHARED_BYTES) == {80, 86, 89, 90, 100, 120}


@pytest.mark.slow
def test_attention_of_the_released_recipe_spills_nothing(tmp_path: Path) -> None:
    needs = (
        "paged:bfloat16,head_dim=128,group=4,page_size=64,verify_width=8",
        "shared:bfloat16,head_dim=128,group=4,page_size=64,block=8,causal=1",
    )
    arguments = [part for need in needs for part in ("--need", need)]
    # One SM of each way to multiply matrices where registers are scarce: mma, tcgen05, mma with little shared memory.
    result = _compile(ROOT, tmp_path / "generated", tmp_path / "cache", "--sm", "86,100,120", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = json.loads((tmp_path / "generated" / "kernels.json").read_text())
    assert len(rows) == 7 * 4  # append, two verify tiles, prefill, shared, two merges; three SMs and PTX
    assert all(row["spill_bytes"] == 0 for row in rows)
    assert all(row["shared_bytes"] <= SHARED_BYTES[86 if row["ptx"] else row["sm"]] for row in rows)
