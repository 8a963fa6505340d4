# SPDX-License-Identifier: Apache-2.0
"""Checks all GPU kernels on this machine's GPU against float64, with fresh random inputs each round.

    python -m build_scripts.gpu_check                      # from source, by Triton's just-in-time compiler
    python -m build_scripts.gpu_check --library PATH       # the launchers and compiled code of the plugin library
    python -m build_scripts.gpu_check --sanitize           # the odd shapes under each tool of compute-sanitizer
    python -m build_scripts.gpu_check --cpu                # the odd shapes under Triton's interpreter

It owns the choice of cases and the report. Needs torch; a GPU unless --cpu is given. Exit status 1 if a check fails.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

if TYPE_CHECKING:
    from build_scripts.gpu_check.cases import Place
    from build_scripts.gpu_check.checks import Outcome
    from build_scripts.gpu_check.ops import Ops

    Check = Callable[[Ops, Place], Outcome]

ROUNDS: Final = 3
DTYPES: Final = ("bfloat16", "float16")
SANITIZER: Final = "compute-sanitizer"
TOOLS: Final = ("memcheck", "initcheck", "racecheck", "synccheck")
KEPT_ROUNDS: Final = 2
"""Inputs of so many rounds stay allocated, so that the next round gets other memory, with old data in it."""


def parser() -> argparse.ArgumentParser:
    parsed = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parsed.add_argument("--library", type=Path, help="plugin library whose launchers and kernels are checked")
    parsed.add_argument("--rounds", type=int, default=ROUNDS, help="fresh inputs per case (default: %(default)s)")
    parsed.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31), help="of the first round (random)")
    parsed.add_argument("--dtypes", default=",".join(DTYPES), help="engine types (default: %(default)s)")
    parsed.add_argument("--only", default="", help="names of checks must contain this")
    parsed.add_argument("--cpu", action="store_true", help="odd shapes only, under Triton's interpreter")
    parsed.add_argument("--no-poison", action="store_true", help="no poison, and no guards around workspaces")
    parsed.add_argument("--sanitize", action="store_true", help=f"run the odd shapes once under {SANITIZER}")
    parsed.add_argument("--tools", default=",".join(TOOLS), help=f"of {SANITIZER} (default: %(default)s)")
    return parsed


def sanitized(options: argparse.Namespace, tool: str) -> list[str]:
    """The command that repeats this run under a tool of the sanitizer: one round of the odd shapes.

    Raises:
        SystemExit: the sanitizer is not installed, or has no such tool.
    """
    sanitizer = shutil.which(SANITIZER)
    if sanitizer is None:
        raise SystemExit(f"{SANITIZER} is not on PATH; it comes with the CUDA toolkit")
    if tool not in TOOLS:
        raise SystemExit(f"{SANITIZER} has no tool {tool!r}; needed: {', '.join(TOOLS)}")
    command = [sanitizer, "--tool", tool, "--error-exitcode", "1", sys.executable, "-m", "build_scripts.gpu_check"]
    command += ["--rounds", "0", "--seed", str(options.seed), "--dtypes", options.dtypes, "--only", options.only]
    command += ["--library", str(options.library)] if options.library else []
    # Poison is written memory, and the guards around a workspace are memory that may be read: both hide faults there.
    return [*command, "--no-poison"] if options.no_poison or tool in ("memcheck", "initcheck") else command


def sanitize(options: argparse.Namespace) -> int:
    """Run every tool; returns how many found something."""
    commands = {tool: sanitized(options, tool) for tool in options.tools.split(",")}
    # Torch cuts tensors out of larger blocks, in which a step over a tensor's end is no fault that a tool could see.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    failed = []
    for tool, command in commands.items():
        print(f"== {tool}", flush=True)
        failed += [tool] if subprocess.run(command, check=False, env=environment).returncode else []
    print(f"{', '.join(failed)} failed" if failed else "no tool found anything")
    return len(failed)


def checks_of(options: argparse.Namespace) -> Iterator[tuple[str, Check]]:
    """Kind and check of each case, in the order of the table; a GPU gets the odd shapes and the large ones."""
    from build_scripts.gpu_check import checks, table

    kinds: tuple[tuple[str, Callable[..., Outcome], Sequence[Any], Sequence[Any]], ...] = (
        ("paged_attention", checks.check_paged, table.ODD_PAGED, table.GPU_PAGED),
        ("append_kv", checks.check_append, table.ODD_PAGED, table.GPU_PAGED),
        ("shared_kv_attention", checks.check_shared, table.ODD_SHARED, table.GPU_SHARED),
        ("mamba2_block_scan", checks.check_scan, table.ODD_SCAN, table.GPU_SCAN),
        ("sample_tokens", checks.check_sample, table.ODD_SAMPLE, table.GPU_SAMPLE),
    )
    for kind, check, odd, large in kinds:
        for case in odd if options.cpu or options.rounds == 0 else (*odd, *large):
            if options.only in f"{kind} {case.name}":
                yield kind, partial(_check_case, check, kind, case)


def _check_case(check: Callable[..., Outcome], kind: str, case: Any, ops: Ops, place: Place) -> Outcome:
    from build_scripts.gpu_check.checks import Outcome
    from build_scripts.gpu_check.library_ops import LibraryError

    try:
        return check(ops, case, place)
    except LibraryError as error:
        return Outcome(f"{kind} {case.name}", 0.0, 0.0, str(error))


def print_outcome(outcome: Outcome, dtype: str) -> None:
    """One line of the report."""
    mark = "ok  " if outcome.passed else "FAIL"
    note = f"  {outcome.fault}" if outcome.fault else ""
    print(f"{mark} {outcome.name} [{dtype}] error {outcome.error:.2e} of {outcome.allowed:.2e}{note}", flush=True)


def run_checks(options: argparse.Namespace) -> int:
    """Run and print; returns how many failed."""
    import torch

    from build_scripts.gpu_check.cases import Place
    from build_scripts.gpu_check.runners import choose_ops

    ops = choose_ops(options.library, cpu=options.cpu, poison=not options.no_poison)
    device = "cpu" if options.cpu else "cuda"
    dtypes = ["float32", "float16"] if options.cpu else options.dtypes.split(",")
    failed = 0
    kept: list[torch.Tensor] = []
    for round_ in range(max(1, options.rounds)):
        for kind, check in checks_of(options):
            for dtype in dtypes[:1] if kind == "sample_tokens" else dtypes:
                outcome = check(ops, Place(device, getattr(torch, dtype), options.seed + round_))
                print_outcome(outcome, dtype)
                failed += not outcome.passed
        kept = [*kept, torch.empty(1 << 26, dtype=torch.uint8, device=device)][-KEPT_ROUNDS:]
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.sanitize:
        return 1 if sanitize(options) else 0
    if options.cpu:
        os.environ["TRITON_INTERPRET"] = "1"
    print(f"seed {options.seed}")
    failed = run_checks(options)
    print(f"{failed} checks failed" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
