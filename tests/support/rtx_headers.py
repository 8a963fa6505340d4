# SPDX-License-Identifier: Apache-2.0
"""Headers that look like those of TensorRT for RTX, which cannot be had everywhere: TensorRT's own, with what RTX adds.

Only what our runtime uses is added, as plain fields instead of calls into a library.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from build_scripts.build_plugins import TENSORRT

_ADDED = """
enum class DynamicShapesKernelSpecializationStrategy : int32_t { kLAZY = 0, kEAGER = 1, kNONE = 2 };

class IRuntimeCache {
public:
    virtual ~IRuntimeCache() noexcept = default;
};

class IRuntimeConfig {
public:
    virtual ~IRuntimeConfig() noexcept = default;
    void setExecutionContextAllocationStrategy(ExecutionContextAllocationStrategy wanted) noexcept {
        allocation = wanted;
    }
    void setDynamicShapesKernelSpecializationStrategy(DynamicShapesKernelSpecializationStrategy wanted) noexcept {
        kernels = wanted;
    }
    IRuntimeCache* createRuntimeCache() noexcept { return new IRuntimeCache; }
    bool setRuntimeCache(IRuntimeCache& wanted) noexcept {
        cache = &wanted;
        return true;
    }
    ExecutionContextAllocationStrategy allocation = ExecutionContextAllocationStrategy::kSTATIC;
    DynamicShapesKernelSpecializationStrategy kernels = DynamicShapesKernelSpecializationStrategy::kLAZY;
    IRuntimeCache* cache = nullptr;
};
"""


def rtx_headers(folder: Path) -> Path:
    """Write them into `folder`."""
    shutil.copytree(TENSORRT.folder(), folder)
    runtime = folder / "NvInferRuntime.h"
    text, count = re.subn(
        r"^class IRuntimeConfig : public INoCopy\n.*?^};[^\n]*\n",
        _ADDED,
        runtime.read_text(encoding="utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )
    assert count == 1, "IRuntimeConfig is not where it was"
    runtime.write_text(text, encoding="utf-8")
    version = folder / "NvInferVersion.h"
    version.write_text(version.read_text(encoding="utf-8") + "\n#define TRT_MAJOR_RTX 1\n", encoding="utf-8")
    return folder
