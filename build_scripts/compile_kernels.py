# SPDX-License-Identifier: Apache-2.0
"""Compiles the GPU kernels that engines need, for every SM, and writes what the plugin library embeds. Needs no GPU.

    python build_scripts/compile_kernels.py ENGINE_DIR...                     # kernels of built engines
    python build_scripts/compile_kernels.py --need paged:bfloat16,head_dim=128,group=4,page_size=64,verify_width=8
    python build_scripts/compile_kernels.py --header-only                     # kernel_table.h alone

It owns the command line and the printed table; a variant that spills registers fails the run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from build_scripts.engine_needs import need_from_text, needs_of_engine  # noqa: E402
from build_scripts.kernel_compiler import SMS, Job, compile_all, jobs_for  # noqa: E402
from build_scripts.kernel_table import CompiledKernel, write_header, write_table  # noqa: E402
from hspec_trt.errors import BuildError, Faults, HspecError  # noqa: E402
from plugins.kernels.needs import Need, variants_for  # noqa: E402

GENERATED: Final = ROOT / "plugins" / "src" / "generated"
CACHE: Final = ROOT / ".cache" / "kernels"


def parser() -> argparse.ArgumentParser:
    parsed = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parsed.add_argument("engines", nargs="*", type=Path, help="engine folders, or graph.onnx files")
    parsed.add_argument("--need", action="append", default=[], help="one kind of node, see above; may be repeated")
    parsed.add_argument("--sm", default=",".join(map(str, SMS)), help="GPU architectures (default: %(default)s)")
    parsed.add_argument("--output", type=Path, default=GENERATED, help="folder of the generated files")
    parsed.add_argument("--cache", type=Path, default=CACHE, help="folder of compiled kernels by content")
    parsed.add_argument("--processes", type=int, default=2, help="compilers at work at a time (default: %(default)s)")
    parsed.add_argument("--header-only", action="store_true", help="write kernel_table.h and compile nothing")
    return parsed


def collect_needs(engines: Sequence[Path], texts: Sequence[str]) -> list[Need]:
    """All needs; faults of all of them are reported together.

    Raises:
        HspecError: an engine cannot be read, or needs what no kernel can do; B062 there is no Triton.
    """
    faults, needs = Faults(), []
    for engine in engines:
        with faults.collect():
            needs += needs_of_engine(engine)
    for text in texts:
        with faults.collect():
            needs.append(need_from_text(text))
    if find_spec("triton") is None:
        fix = "python -m pip install 'hspec_trt[kernels]'"
        faults.add(BuildError("B062", "Triton is not installed", needed="it to compile kernels", fix=fix))
    faults.raise_any()
    return needs


_COLUMNS: Final = "{:<96} {:>4} {:>5} {:>5} {:>6} {:>7} {:>8}"


def print_row(kernel: CompiledKernel, job: Job) -> None:
    target = f"{kernel.sm}{'p' if kernel.ptx else ''}"
    spilled, shared, size = kernel.spill_bytes, kernel.shared_bytes, len(kernel.code)
    print(
        _COLUMNS.format(str(job.variant), target, kernel.threads, kernel.registers, spilled, shared, size), flush=True
    )


def compile_and_print(jobs: Sequence[Job], cache: Path, processes: int) -> list[CompiledKernel]:
    print(_COLUMNS.format("variant (sm with p: PTX)", "sm", "thr", "regs", "spills", "shared", "bytes"))
    compiled = []
    for job, kernel in zip(jobs, compile_all(jobs, cache, processes), strict=True):
        print_row(kernel, job)
        compiled.append(kernel)
    return compiled


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.header_only:
        write_header(options.output)
        return 0
    try:
        needs = collect_needs(options.engines, options.need)
    except HspecError as error:
        print(error, file=sys.stderr)
        return 2
    if not needs:
        parser().error("name an engine folder or a --need: there is nothing to compile")
    start = time.monotonic()
    jobs = jobs_for(variants_for(needs), [int(sm) for sm in options.sm.split(",")])
    compiled = compile_and_print(jobs, options.cache, options.processes)
    spilling = [kernel for kernel in compiled if kernel.spill_bytes]
    total = sum(len(kernel.code) for kernel in compiled)
    print(f"{len(compiled)} kernels, {total / 1e6:.1f} MB, {time.monotonic() - start:.0f} s")
    if spilling:
        print(f"{len(spilling)} of them spill registers", file=sys.stderr)
        return 1
    write_table(options.output, compiled)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
