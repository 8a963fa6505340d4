// SPDX-License-Identifier: Apache-2.0
#include "trt/cuda.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace hspec_trt::trt {
namespace {

constexpr char const* kLibrary = "libcuda.so.1";

template <typename Function>
void resolve(void* library, char const* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    if (*function == nullptr) {
        throw CudaError(std::string(kLibrary) + " has no " + name + ": the driver is too old");
    }
}

}  // namespace

Driver::Driver() {
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        throw CudaError(std::string("no CUDA driver: ") + dlerror());
    }
#define HSPEC_TRT_DRIVER_RESOLVE(name) resolve(library, #name, &this->name);
    HSPEC_TRT_DRIVER_CALLS(HSPEC_TRT_DRIVER_RESOLVE)
#undef HSPEC_TRT_DRIVER_RESOLVE
    check(this->cuInit(0), "cuInit");
}

Driver const& Driver::open() {
    static Driver const driver;  // where it fails, the next call tries again
    return driver;
}

void Driver::check(CUresult result, char const* call) const {
    if (result == CUDA_SUCCESS) {
        return;
    }
    char const* name = nullptr;
    char const* text = nullptr;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    throw CudaError(std::string(call) + ": " + (name != nullptr ? name : "status " + std::to_string(result)) +
                    (text != nullptr ? std::string(", ") + text : ""));
}

// Calls a function of the driver and checks its status.
#define HSPEC_TRT_CUDA(function, ...) driver_.check(driver_.function(__VA_ARGS__), #function)

Memory::~Memory() {
    // A status that comes here is an older failure of the stream, which was told where it was waited for.
    if (device_ != 0) {
        cuda_->driver_.cuMemFree_v2(device_);
    }
    if (host_ != nullptr) {
        cuda_->driver_.cuMemFreeHost(host_);
    }
}

Cuda::Cuda(int32_t ordinal) : driver_(Driver::open()) {
    int count = 0;
    HSPEC_TRT_CUDA(cuDeviceGetCount, &count);
    if (ordinal < 0 || ordinal >= count) {
        throw CudaError("device " + std::to_string(ordinal) + " of " + std::to_string(count));
    }
    HSPEC_TRT_CUDA(cuDeviceGet, &device_, ordinal);
    HSPEC_TRT_CUDA(cuDevicePrimaryCtxRetain, &context_, device_);
    try {
        makeCurrent();
        HSPEC_TRT_CUDA(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    } catch (CudaError const&) {
        driver_.cuDevicePrimaryCtxRelease_v2(device_);
        throw;
    }
}

Cuda::~Cuda() {
    driver_.cuStreamDestroy_v2(stream_);
    driver_.cuDevicePrimaryCtxRelease_v2(device_);
}

void Cuda::makeCurrent() const {
    HSPEC_TRT_CUDA(cuCtxSetCurrent, context_);
}

DeviceInfo Cuda::device() const {
    std::array<char, 256> name{};
    int major = 0;
    int minor = 0;
    std::size_t free = 0;
    std::size_t total = 0;
    HSPEC_TRT_CUDA(cuDeviceGetName, name.data(), static_cast<int>(name.size()) - 1, device_);
    HSPEC_TRT_CUDA(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_);
    HSPEC_TRT_CUDA(cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_);
    HSPEC_TRT_CUDA(cuMemGetInfo_v2, &free, &total);
    return {name.data(), 10 * major + minor, static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

Memory Cuda::allocate(std::size_t bytes) const {
    CUdeviceptr address = 0;
    HSPEC_TRT_CUDA(cuMemAlloc_v2, &address, std::max<std::size_t>(bytes, 1));
    return {*this, address, nullptr, bytes};
}

Memory Cuda::allocateHost(std::size_t bytes) const {
    void* address = nullptr;
    HSPEC_TRT_CUDA(cuMemHostAlloc, &address, std::max<std::size_t>(bytes, 1), 0);
    return {*this, 0, address, bytes};
}

void Cuda::upload(CUdeviceptr target, void const* pinned, std::size_t bytes) const {
    HSPEC_TRT_CUDA(cuMemcpyHtoDAsync_v2, target, pinned, bytes, stream_);
}

void Cuda::download(void* pinned, CUdeviceptr source, std::size_t bytes) const {
    HSPEC_TRT_CUDA(cuMemcpyDtoHAsync_v2, pinned, source, bytes, stream_);
}

void Cuda::copy(CUdeviceptr target, CUdeviceptr source, std::size_t bytes) const {
    HSPEC_TRT_CUDA(cuMemcpyDtoDAsync_v2, target, source, bytes, stream_);
}

void Cuda::zero(CUdeviceptr target, std::size_t bytes) const {
    HSPEC_TRT_CUDA(cuMemsetD8Async, target, 0, bytes, stream_);
}

void Cuda::synchronize() const {
    HSPEC_TRT_CUDA(cuStreamSynchronize, stream_);
}

CUevent Cuda::createEvent() const {
    CUevent event = nullptr;
    HSPEC_TRT_CUDA(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    return event;
}

void Cuda::record(CUevent event) const {
    HSPEC_TRT_CUDA(cuEventRecord, event, stream_);
}

void Cuda::wait(CUevent event) const {
    HSPEC_TRT_CUDA(cuEventSynchronize, event);
}

void Cuda::destroy(CUevent event) const {
    driver_.cuEventDestroy_v2(event);
}

void Cuda::beginCapture() const {
    HSPEC_TRT_CUDA(cuStreamBeginCapture_v2, stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

CUgraphExec Cuda::endCapture() const {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    HSPEC_TRT_CUDA(cuStreamEndCapture, stream_, &graph);
    CUresult const status = driver_.cuGraphInstantiateWithFlags(&executable, graph, 0);
    driver_.cuGraphDestroy(graph);
    driver_.check(status, "cuGraphInstantiateWithFlags");
    return executable;
}

void Cuda::launch(CUgraphExec graph) const {
    HSPEC_TRT_CUDA(cuGraphLaunch, graph, stream_);
}

void Cuda::destroy(CUgraphExec graph) const {
    driver_.cuGraphExecDestroy(graph);
}

}  // namespace hspec_trt::trt
