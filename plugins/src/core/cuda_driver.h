// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, opened at run time: the library loads on machines that have none.
#pragma once

#include <cuda.h>

#include "core/status.h"

namespace hspec_trt {

struct DeviceInfo {
    CUdevice device = 0;
    int32_t sm = 0;  // 89 for compute capability 8.9
    int32_t multiprocessors = 0;
};

class CudaDriver {
  public:
    // The opened driver; every call after a failure gives the same failure.
    static Status open(CudaDriver const** driver);

    // The device of the calling thread's current context.
    Status currentDevice(DeviceInfo* info) const;
    // Text for a CUDA status, with what was called.
    Status check(CUresult result, char const* call) const;

    decltype(&cuCtxGetDevice) ctxGetDevice = nullptr;
    decltype(&cuDeviceGetAttribute) deviceGetAttribute = nullptr;
    decltype(&cuLibraryLoadData) libraryLoadData = nullptr;
    decltype(&cuLibraryGetKernel) libraryGetKernel = nullptr;
    decltype(&cuKernelGetFunction) kernelGetFunction = nullptr;
    CUresult (*funcLoad)(CUfunction) = nullptr;  // from CUDA 12.4 on; null where the driver is older
    decltype(&cuKernelSetAttribute) kernelSetAttribute = nullptr;
    decltype(&cuLaunchKernel) launchKernel = nullptr;
    decltype(&cuGetErrorName) getErrorName = nullptr;
    decltype(&cuGetErrorString) getErrorString = nullptr;

  private:
    Status load();
};

}  // namespace hspec_trt
