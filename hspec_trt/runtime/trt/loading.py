# SPDX-License-Identifier: Apache-2.0
"""From an engine folder's compiled plan to a session: package, GPU, plugin library, versions, in that order.

All that can be wrong is told in words before TensorRT reads the plan.
"""

from __future__ import annotations

import importlib
from typing import Any

from hspec_trt.bundle import EngineFolder
from hspec_trt.bundle.manifest import REBUILD, Artifact
from hspec_trt.errors import Faults, LoadError
from hspec_trt.native import TRT_PACKAGES, PluginLibrary, TrtPackage, find_library, open_library, register
from hspec_trt.runtime.session import Limits
from hspec_trt.runtime.trt.cuda import Cuda, CudaError, DeviceInfo
from hspec_trt.runtime.trt.engine import EngineError, TrtEngine
from hspec_trt.runtime.trt.session import TrtSession


def load_trt_session(folder: EngineFolder, limits: Limits, *, use_graphs: bool) -> tuple[TrtSession, int]:
    """The session of a folder's first artifact, and the bytes of device memory that are free beside it.

    Raises:
        LoadError: L002 plugin library, L031 and L039 plan, L033 packages, L042 GPU or driver, L038 the plan is for
            another TensorRT or another GPU.
    """
    manifest = folder.manifest
    artifact, package = folder.artifact(), TRT_PACKAGES[manifest.backend]
    cuda_api = _import("cuda.bindings.runtime", package, "cuda-python")
    library = open_library(find_library()) if manifest.plugins == "kernels" else None
    try:
        cuda = Cuda(cuda_api)
        device = cuda.device()
    except CudaError as error:
        found = f"backend {manifest.backend} finds no NVIDIA GPU to run on ({error})"
        fix = "Build with --backend onnxruntime to run on a CPU, or run on a machine with a GPU and its driver"
        raise LoadError("L042", found, needed="a GPU with driver", where=str(folder.path), fix=fix) from error
    _check_fit(folder, artifact, package, device, library)
    trt = _import(package.module, package, package.distribution)
    if library is not None:
        register(library, trt.get_plugin_registry())
    plan = folder.file(artifact.file)
    try:
        engine = TrtEngine(trt, cuda, plan, limits, compiles_at_run_time=package.compiles_at_run_time)
        session = TrtSession(engine, cuda, limits, aliased=manifest.plugins == "kernels", use_graphs=use_graphs)
    except CudaError as error:
        found = f"the GPU {device.name} with {device.free / 2**30:.1f} GiB free does not hold the engine: {error}"
        raise LoadError("L035", found, where=str(plan), fix="Free GPU memory, or use a larger GPU") from error
    except EngineError as error:
        raise LoadError("L039", f"TensorRT refuses the plan: {error}", where=str(plan), fix=REBUILD) from error
    return session, cuda.device().free


def _import(module: str, package: TrtPackage, distribution: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        found = f"this engine needs the package {distribution}: {error}"
        raise LoadError("L033", found, fix=f"pip install 'hspec_trt[{package.extra}]'") from error


def _check_fit(
    folder: EngineFolder, artifact: Artifact, package: TrtPackage, device: DeviceInfo, library: PluginLibrary | None
) -> None:
    faults, where = Faults(), str(folder.path)
    if package.version is not None and _series(package.version) != _series(artifact.tensorrt_version):
        found = f"the plan was built by {package.distribution} {artifact.tensorrt_version}"
        needed = f"{package.version}, which is installed"
        faults.add(LoadError("L038", found, needed=needed, where=where, fix=REBUILD))
    if artifact.sm and device.sm not in artifact.sm:
        found = f"the plan is for sm {', '.join(map(str, artifact.sm))}"
        needed = f"{device.sm}, this machine's {device.name}"
        faults.add(LoadError("L038", found, needed=needed, where=where, fix=f"{REBUILD} --sm {device.sm}"))
    if library is not None and device.sm not in library.sm and not any(sm <= device.sm for sm in library.ptx):
        found = f"the plugin library has kernels for sm {', '.join(map(str, library.sm)) or 'no GPU'}"
        needed = f"{device.sm}, this machine's {device.name}"
        fix = f"python build_scripts/compile_kernels.py {where} && python build_scripts/build_plugins.py"
        faults.add(LoadError("L002", found, needed=needed, where=str(library.path), fix=fix))
    faults.raise_any()


def _series(version: str) -> tuple[str, ...]:
    """The part of a version within which plans can be read."""
    return tuple(version.split(".")[:2])
