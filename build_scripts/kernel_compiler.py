# SPDX-License-Identifier: Apache-2.0
"""Compiles one kernel variant for one SM with Triton, without a GPU, and keeps the result by content.

It owns the compile signature (from the catalog), the toolchain that makes the code, and the cache. It does not choose
what to compile. Triton is imported inside a worker process only: it must not be in interpreter mode there.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from build_scripts.kernel_table import CompiledKernel
from plugins.kernels.catalog import ENGINE_DTYPES, KERNELS
from plugins.kernels.variants import FALLBACK_SM, SHARED_BYTES, Tuning, Variant, tunings

SMS: Final = tuple(SHARED_BYTES)
PTX_SM: Final = 80
"""Its PTX serves every GPU that has no code of its own: Triton's PTX for SM 90 and above is bound to one SM."""
FALLBACK_PTX_VERSION: Final = 80
"""The PTX version of CUDA 12.0: the oldest driver that TensorRT 10 takes reads it."""
_CACHE_FORMAT: Final = 1
_SPILL: Final = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS: Final = re.compile(r"Used (\d+) registers")
_TRITON_TYPES: Final = {"*f32": "*fp32", "f32": "fp32"}
_POINTER_ALIGN: Final = [["tt.divisibility", 16]]


@dataclass(frozen=True)
class Job:
    """One thing to compile; `ptx` asks for PTX text instead of a cubin."""

    variant: Variant
    sm: int
    ptx: bool = False

    def __str__(self) -> str:
        return f"{self.variant} sm={self.sm}{' ptx' if self.ptx else ''}"


def jobs_for(variants: Iterable[Variant], sms: Sequence[int]) -> list[Job]:
    """Cubins of all variants for all SMs, and the PTX fallback of each variant, in a fixed order."""
    ordered = sorted(set(variants))
    cubins = [Job(variant, sm) for variant in ordered for sm in sorted(set(sms))]
    return cubins + [Job(variant, PTX_SM, ptx=True) for variant in ordered]


def source_hash() -> str:
    """Hash of everything that the code of a kernel depends on, apart from the job itself."""
    digest = hashlib.sha256(f"{_CACHE_FORMAT} {version('triton')}".encode())
    folder = Path(__file__).resolve().parents[1] / "plugins" / "kernels"
    for path in [*sorted(folder.glob("*.py")), Path(__file__)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _cache_path(cache: Path, sources: str, job: Job) -> Path:
    return cache / hashlib.sha256(f"{sources} {job}".encode()).hexdigest()[:40]


def _signature(
    variant: Variant, values: Mapping[str, int], names: Sequence[str]
) -> tuple[dict[str, str], dict[tuple[int], int], Any]:
    """Triton's signature, constants and attributes of a variant, by the function's parameter names."""
    element = ENGINE_DTYPES.get(variant.dtype, "")
    types = {
        arg.name: _TRITON_TYPES.get(arg.type, arg.type).replace("T", element) for arg in KERNELS[variant.kernel].args
    }
    signature = {name: types.get(name, "constexpr") for name in names}
    constexprs = {(index,): values[name] for index, name in enumerate(names) if name not in types}
    aligned = {name for name, type_ in types.items() if type_.startswith("*")}
    if values.get("VOCAB_ALIGN") == 16:
        aligned.add("vocab_size")
    attrs = {(index,): _POINTER_ALIGN for index, name in enumerate(names) if name in aligned}
    return signature, constexprs, attrs


def _triton_code(job: Job, chosen: Tuning) -> tuple[Any, str]:
    """Compile in this process; returns Triton's result and what ptxas printed."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    knobs: Any = triton.knobs
    # Line tables would carry this machine's paths into the code. One ptxas for all: what the newer one writes for SM 90
    # and above loads on CUDA 13 drivers only.
    knobs.compilation.disable_line_info = True
    knobs.nvidia.ptxas_blackwell = knobs.nvidia.ptxas.path
    knobs.nvidia.dump_ptxas_log = True
    module = importlib.import_module(f"plugins.kernels.{KERNELS[job.variant.kernel].module}")
    function = getattr(module, job.variant.kernel)
    signature, constexprs, attrs = _signature(job.variant, chosen.constants, function.arg_names)
    options: dict[str, Any] = {"num_warps": chosen.num_warps, "num_stages": chosen.num_stages, "enable_fp_fusion": True}
    if job.ptx:
        options["ptx_version"] = FALLBACK_PTX_VERSION
    source = ASTSource(fn=function, signature=signature, constexprs=constexprs, attrs=attrs)
    log = io.StringIO()
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(log):
        knobs.cache.dir = scratch
        compiled = triton.compile(source, target=GPUTarget("cuda", job.sm, 32), options=options)
    return compiled, log.getvalue()


def _compile_with(job: Job, chosen: Tuning) -> CompiledKernel:
    compiled, log = _triton_code(job, chosen)
    metadata = compiled.metadata
    if metadata.global_scratch_size or metadata.profile_scratch_size:
        raise RuntimeError(f"{job}: needs {metadata.global_scratch_size} bytes of scratch, launchers give none")
    spills, registers = _SPILL.search(log), _REGISTERS.search(log)
    if spills is None or registers is None:
        raise RuntimeError(f"{job}: ptxas printed no resource usage: {log!r}")
    return CompiledKernel(
        kernel=job.variant.kernel,
        dtype=job.variant.dtype,
        key=job.variant.key,
        sm=job.sm,
        ptx=job.ptx,
        symbol=metadata.name,
        threads=32 * metadata.num_warps,
        shared_bytes=metadata.shared,
        registers=int(registers[1]),
        spill_bytes=int(spills[1]) + int(spills[2]),
        code=compiled.asm["ptx"].encode() + b"\0" if job.ptx else compiled.asm["cubin"],
    )


def _compile(job: Job) -> CompiledKernel:
    """The first tuning that fits shared memory and spills nothing, else the one that spills least.

    Raises:
        RuntimeError: none fits.
    """
    tuned_for = FALLBACK_SM if job.ptx else job.sm
    fitting: list[CompiledKernel] = []
    for chosen in tunings(job.variant, tuned_for):
        kernel = _compile_with(job, chosen)
        if kernel.shared_bytes <= SHARED_BYTES[tuned_for]:
            fitting.append(kernel)
            if kernel.spill_bytes == 0:
                break
    if not fitting:
        raise RuntimeError(f"{job}: no tuning fits {SHARED_BYTES[tuned_for]} bytes of shared memory")
    return min(fitting, key=lambda kernel: kernel.spill_bytes)


def _load(path: Path) -> CompiledKernel | None:
    if not path.with_suffix(".json").exists():
        return None
    row = json.loads(path.with_suffix(".json").read_text())
    return CompiledKernel(**{**row, "key": tuple(row["key"])}, code=path.with_suffix(".bin").read_bytes())


def _store(path: Path, kernel: CompiledKernel) -> None:
    """The .json is written last and by renaming, so a cache entry is whole or absent."""
    row = {name: value for name, value in asdict(kernel).items() if name != "code"}
    for suffix, content in ((".bin", kernel.code), (".json", json.dumps(row).encode())):
        scratch = path.with_suffix(f"{suffix}.{os.getpid()}")
        scratch.write_bytes(content)
        scratch.replace(path.with_suffix(suffix))


def compile_job(job: Job, cache: Path, sources: str) -> CompiledKernel:
    """One compiled kernel, from the cache or from Triton.

    Raises:
        RuntimeError: Triton is in interpreter mode, or the kernel wants scratch memory.
    """
    path = _cache_path(cache, sources, job)
    cached = _load(path)
    if cached is not None:
        return cached
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise RuntimeError("TRITON_INTERPRET is set: kernels cannot be compiled in this process")
    kernel = _compile(job)
    cache.mkdir(parents=True, exist_ok=True)
    _store(path, kernel)
    return kernel


@contextlib.contextmanager
def _compiling_environment() -> Iterator[None]:
    """Workers inherit an environment in which Triton compiles, whatever this process does with it."""
    saved = os.environ.pop("TRITON_INTERPRET", None)
    try:
        yield
    finally:
        if saved is not None:
            os.environ["TRITON_INTERPRET"] = saved


def compile_all(jobs: Sequence[Job], cache: Path, processes: int) -> Iterator[CompiledKernel]:
    """Compile in parallel; results come in the order of `jobs`, each as soon as it and those before it are there."""
    sources = source_hash()
    missing = [job for job in jobs if _load(_cache_path(cache, sources, job)) is None]
    if not missing:
        yield from (compile_job(job, cache, sources) for job in jobs)
        return
    with _compiling_environment(), ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = {job: pool.submit(compile_job, job, cache, sources) for job in missing}
        for job in jobs:
            yield futures[job].result() if job in futures else compile_job(job, cache, sources)
