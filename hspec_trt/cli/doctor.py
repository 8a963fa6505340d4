# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt doctor``: what this machine can build and run."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import platform
import shutil
from pathlib import Path

import click
from rich.table import Table

from hspec_trt import __version__
from hspec_trt.cli.display import OUT, bytes_text, key_value_table
from hspec_trt.machine import free_memory

_PACKAGES = {
    "onnxruntime": "cpu",
    "tensorrt-rtx": "rtx",
    "tensorrt": "tensorrt",
    "torch": "train",
    "fastapi": "serve",
    "llguidance": "guided",
}


@click.command(name="doctor", short_help="Show what this machine can build and run.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor_command(as_json: bool) -> None:
    """Show what this machine can build and run."""
    packages = {name: _version(name) for name in _PACKAGES}
    machine = {
        "hspec_trt": __version__,
        "python": platform.python_version(),
        "processor": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores usable",
        "memory free": bytes_text(free_memory()),
        "disk free here": bytes_text(shutil.disk_usage(Path.cwd()).free),
        "NVIDIA driver": cuda_driver_version() or "none",
    }
    backends = _backends(packages, has_gpu=machine["NVIDIA driver"] != "none")
    if as_json:
        click.echo(json.dumps({"machine": machine, "packages": packages, "backends": backends}, indent=2))
        return
    OUT.print(key_value_table("machine", dict(machine)))
    shown = {
        name: version or f"not installed: pip install 'hspec_trt[{_PACKAGES[name]}]'"
        for name, version in packages.items()
    }
    OUT.print(key_value_table("packages", dict(shown)))
    table = Table("backend", "builds here", "runs here", title="backends", title_justify="left", title_style="bold")
    for name, can in backends.items():
        table.add_row(name, can["builds"], can["runs"])
    OUT.print(table)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cuda_driver_version() -> str | None:
    """CUDA version that the installed driver supports, such as ``13.0``; None where there is no driver or GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version, devices = ctypes.c_int(), ctypes.c_int()
    try:
        failed = driver.cuInit(0) or driver.cuDriverGetVersion(ctypes.byref(version))
        failed = failed or driver.cuDeviceGetCount(ctypes.byref(devices))
    except AttributeError:  # a library of that name that is no driver
        return None
    if failed or not devices.value:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _backends(packages: dict[str, str | None], *, has_gpu: bool) -> dict[str, dict[str, str]]:
    def answer(package: str, *, needs_gpu: bool) -> str:
        if packages[package] is None:
            return "no: package missing"
        return "no: no GPU" if needs_gpu and not has_gpu else "yes"

    return {
        "onnxruntime": {"builds": "yes", "runs": answer("onnxruntime", needs_gpu=False)},
        "tensorrt-rtx": {
            "builds": answer("tensorrt-rtx", needs_gpu=False),
            "runs": answer("tensorrt-rtx", needs_gpu=True),
        },
        "tensorrt": {"builds": answer("tensorrt", needs_gpu=True), "runs": answer("tensorrt", needs_gpu=True)},
    }
