// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_driver.h"

#include <dlfcn.h>

#include <array>
#include <mutex>

namespace hspec_trt {
namespace {

constexpr char const* kLibrary = "libcuda.so.1";
constexpr int32_t kMaxDevices = 64;

template <typename Function>
Status resolve(void* library, char const* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr ? Status::ok()
                                : Status::error(std::string(kLibrary) + " has no " + name + ": the driver is too old");
}

}  // namespace

Status CudaDriver::load() {
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        return Status::error(std::string("no CUDA driver: ") + dlerror());
    }
    decltype(&cuInit) init = nullptr;
    HSPEC_TRT_RETURN_IF_ERROR(resolve(library, "cuInit", &init));
    HSPEC_TRT_RETURN_IF_ERROR(resolve(library, "cuCtxGetDevice", &ctxGetDevice));
    HSPEC_TRT_RETURN_IF_ERROR(resolve(library, "cuDeviceGetAttribute", &deviceGetAttribute));
    HSPEC_TRT_RETURN_IF_ERROR(resolve(library, "cuLibraryLoadData", &libraryLoadData));
    HSPEC_TRT_RETURN_IF_ERROR(resolve(library, "cuLibraryGetKernel", &libraryGetKernel));
    HSPEC_TRT_RETURN_IF_ERROR(resolve(library, "cuKernelGetFunction", &kernelGetFunction));
    funcLoad = reinterpret_cast<decltype(funcLoad)>(dlsym(library, "cuFuncLoad"));
    HSPEC_TRT_RETURN_IF_ERROR(resolve(library, "cuKernelSetAttribute", &kernelSetAttribute));
    HSPEC_TRT_RETURN_IF_ERROR(resolve(library, "cuLaunchKernel", &launchKernel));
    HSPEC_TRT_RETURN_IF_ERROR(resolve(library, "cuGetErrorName", &getErrorName));
    HSPEC_TRT_RETURN_IF_ERROR(resolve(library, "cuGetErrorString", &getErrorString));
    return check(init(0), "cuInit");
}

Status CudaDriver::open(CudaDriver const** driver) {
    static CudaDriver opened;
    static Status const status = opened.load();
    *driver = &opened;
    return status;
}

Status CudaDriver::check(CUresult result, char const* call) const {
    if (result == CUDA_SUCCESS) {
        return Status::ok();
    }
    char const* name = nullptr;
    char const* text = nullptr;
    getErrorName(result, &name);
    getErrorString(result, &text);
    return Status::error(std::string(call) + ": " + (name != nullptr ? name : "unknown CUDA status") + " (" +
                         std::to_string(static_cast<int32_t>(result)) + ")" +
                         (text != nullptr ? std::string(", ") + text : ""));
}

Status CudaDriver::currentDevice(DeviceInfo* info) const {
    static std::array<DeviceInfo, kMaxDevices> known;
    static std::mutex mutex;
    CUdevice device = 0;
    HSPEC_TRT_RETURN_IF_ERROR(check(ctxGetDevice(&device), "cuCtxGetDevice"));
    if (device < 0 || device >= kMaxDevices) {
        return Status::error("device number " + std::to_string(device) + " is above " + std::to_string(kMaxDevices));
    }
    std::lock_guard<std::mutex> const lock(mutex);
    DeviceInfo& entry = known[static_cast<std::size_t>(device)];
    if (entry.sm == 0) {
        int major = 0;
        int minor = 0;
        HSPEC_TRT_RETURN_IF_ERROR(check(
            deviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "compute capability"));
        HSPEC_TRT_RETURN_IF_ERROR(check(
            deviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "compute capability"));
        HSPEC_TRT_RETURN_IF_ERROR(
            check(deviceGetAttribute(&entry.multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
                  "device size"));
        entry.device = device;
        entry.sm = 10 * major + minor;
    }
    *info = entry;
    return Status::ok();
}

}  // namespace hspec_trt
