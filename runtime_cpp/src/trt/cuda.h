// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, opened at run time, with status codes turned into exceptions and memory with an owner. All work goes
// to one stream. As hspec_trt/runtime/trt/cuda.py.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace hspec_trt::trt {

// A call that CUDA refused; the text names call and status.
class CudaError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// This machine's GPU.
struct DeviceInfo {
    std::string name;
    int64_t sm = 0;  // 89 for compute capability 8.9
    int64_t free = 0;
    int64_t total = 0;  // bytes of memory
};

// The functions of libcuda.so.1 that are used.
struct Driver {
    // Throws CudaError where there is no driver or one that is too old.
    static Driver const& open();
    void check(CUresult result, char const* call) const;

    // clang-format off
#define HSPEC_TRT_DRIVER_CALLS(X) \
    X(cuInit) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) \
    X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) X(cuCtxSetCurrent) \
    X(cuMemGetInfo_v2) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemHostAlloc) \
    X(cuMemFreeHost) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoDAsync_v2) \
    X(cuMemsetD8Async) X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamSynchronize) \
    X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventSynchronize) \
    X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuGraphInstantiateWithFlags) X(cuGraphDestroy) \
    X(cuGraphExecDestroy) X(cuGraphLaunch) X(cuGetErrorName) X(cuGetErrorString)
// clang-format on
#define HSPEC_TRT_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
    HSPEC_TRT_DRIVER_CALLS(HSPEC_TRT_DRIVER_MEMBER)
#undef HSPEC_TRT_DRIVER_MEMBER

  private:
    Driver();
};

class Cuda;

// A block of device memory or of page-locked host memory; given back when it goes.
class Memory {
  public:
    Memory() = default;
    Memory(Cuda const& cuda, CUdeviceptr device, void* host, std::size_t bytes)
        : cuda_(&cuda), device_(device), host_(host), bytes_(bytes) {}
    Memory(Memory&& other) noexcept { swap(other); }
    Memory& operator=(Memory&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Memory();

    CUdeviceptr device() const { return device_; }
    std::byte* host() const { return static_cast<std::byte*>(host_); }
    std::size_t bytes() const { return bytes_; }

  private:
    void swap(Memory& other) noexcept {
        std::swap(cuda_, other.cuda_);
        std::swap(device_, other.device_);
        std::swap(host_, other.host_);
        std::swap(bytes_, other.bytes_);
    }

    Cuda const* cuda_ = nullptr;
    CUdeviceptr device_ = 0;
    void* host_ = nullptr;
    std::size_t bytes_ = 0;
};

// One GPU, its primary context and one stream. What it made must go before it does.
class Cuda {
  public:
    // Throws CudaError where there is no such GPU.
    explicit Cuda(int32_t ordinal);
    Cuda(Cuda const&) = delete;
    Cuda& operator=(Cuda const&) = delete;
    ~Cuda();

    // Every thread calls it before any other.
    void makeCurrent() const;
    DeviceInfo device() const;
    CUstream stream() const { return stream_; }

    // At least one byte, so that an address is never null.
    Memory allocate(std::size_t bytes) const;
    Memory allocateHost(std::size_t bytes) const;

    // These are done in the stream's order; the host does not wait.
    void upload(CUdeviceptr target, void const* pinned, std::size_t bytes) const;
    void download(void* pinned, CUdeviceptr source, std::size_t bytes) const;
    void copy(CUdeviceptr target, CUdeviceptr source, std::size_t bytes) const;
    void zero(CUdeviceptr target, std::size_t bytes) const;

    void synchronize() const;
    CUevent createEvent() const;
    void record(CUevent event) const;
    // Until the stream has passed the marked point; at once where it was never marked.
    void wait(CUevent event) const;
    void destroy(CUevent event) const;

    // From here on the stream's work is recorded, not run; `endCapture` gives it as a graph that `launch` runs.
    void beginCapture() const;
    CUgraphExec endCapture() const;
    void launch(CUgraphExec graph) const;
    void destroy(CUgraphExec graph) const;

  private:
    friend class Memory;

    Driver const& driver_;
    CUdevice device_ = 0;
    CUcontext context_ = nullptr;
    CUstream stream_ = nullptr;
};

}  // namespace hspec_trt::trt
