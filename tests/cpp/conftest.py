# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from tests.support.c_runtime import CRuntime
from tests.support.runtime_build import has_tensorrt, runtime_build


@pytest.fixture(scope="session")
def runtime() -> CRuntime:
    return CRuntime(runtime_build() / "libhspec_trt_runtime.so")


@pytest.fixture(scope="session")
def library() -> Path:
    """The runtime as a file, for programs that run compiled engines with it."""
    folder = runtime_build()
    if not has_tensorrt(folder):
        pytest.skip("the runtime was built without TensorRT's headers")
    return folder / "libhspec_trt_runtime.so"
