// SPDX-License-Identifier: Apache-2.0
#include "core/kernel_store.h"

#include <limits>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace hspec_trt {
namespace {

constexpr uint32_t kSharedWithoutOptIn = 48 * 1024;
constexpr int64_t kMaxGridYZ = 65535;

struct LoadedKernel {
    CUkernel kernel = nullptr;
    uint32_t threads = 0;
    uint32_t sharedBytes = 0;
};

struct LoadedKey {
    KernelRequest request;
    CUdevice device = 0;
    bool operator==(LoadedKey const& other) const { return request == other.request && device == other.device; }
};

struct LoadedKeyHash {
    std::size_t operator()(LoadedKey const& key) const {
        uint64_t hash = 1469598103934665603ULL;
        auto const mix = [&hash](int32_t value) { hash = (hash ^ static_cast<uint32_t>(value)) * 1099511628211ULL; };
        mix(static_cast<int32_t>(key.request.kernel));
        mix(static_cast<int32_t>(key.request.dtype));
        mix(key.device);
        for (int32_t const value : key.request.key) {
            mix(value);
        }
        return static_cast<std::size_t>(hash);
    }
};

std::shared_mutex& loadedMutex() {
    static std::shared_mutex mutex;
    return mutex;
}

std::unordered_map<LoadedKey, LoadedKernel, LoadedKeyHash>& loadedKernels() {
    static std::unordered_map<LoadedKey, LoadedKernel, LoadedKeyHash> kernels;
    return kernels;
}

// Under lazy loading, CUDA's default, a kernel's handle is no code in the context yet: a launch would load that, and
// allocate for it.
Status loadCode(CudaDriver const& driver, CUkernel kernel) {
    CUfunction function = nullptr;
    HSPEC_TRT_RETURN_IF_ERROR(driver.check(driver.kernelGetFunction(&function, kernel), "cuKernelGetFunction"));
    return driver.funcLoad == nullptr ? Status::ok() : driver.check(driver.funcLoad(function), "cuFuncLoad");
}

Status load(CudaDriver const& driver, KernelRequest const& request, DeviceInfo const& device, LoadedKernel* loaded) {
    KernelVariant const* variant = nullptr;
    HSPEC_TRT_RETURN_IF_ERROR(findVariant(request, device.sm, &variant));
    CUlibrary library = nullptr;
    HSPEC_TRT_RETURN_IF_ERROR(driver.check(
        driver.libraryLoadData(&library, kernelBlob() + variant->offset, nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cuLibraryLoadData"));
    HSPEC_TRT_RETURN_IF_ERROR(
        driver.check(driver.libraryGetKernel(&loaded->kernel, library, variant->symbol), "cuLibraryGetKernel"));
    HSPEC_TRT_RETURN_IF_ERROR(loadCode(driver, loaded->kernel));
    loaded->threads = variant->threads;
    loaded->sharedBytes = variant->sharedBytes;
    if (variant->sharedBytes <= kSharedWithoutOptIn) {
        return Status::ok();
    }
    return driver.check(
        driver.kernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  static_cast<int>(variant->sharedBytes), loaded->kernel, device.device),
        "cuKernelSetAttribute");
}

Status obtain(CudaDriver const& driver, KernelRequest const& request, LoadedKernel* loaded) {
    DeviceInfo device;
    HSPEC_TRT_RETURN_IF_ERROR(driver.currentDevice(&device));
    LoadedKey const key{request, device.device};
    {
        std::shared_lock<std::shared_mutex> const lock(loadedMutex());
        auto const found = loadedKernels().find(key);
        if (found != loadedKernels().end()) {
            *loaded = found->second;
            return Status::ok();
        }
    }
    std::unique_lock<std::shared_mutex> const lock(loadedMutex());
    auto const found = loadedKernels().find(key);
    if (found == loadedKernels().end()) {
        HSPEC_TRT_RETURN_IF_ERROR(load(driver, request, device, loaded).within(describe(request)));
        loadedKernels().emplace(key, *loaded);
        return Status::ok();
    }
    *loaded = found->second;
    return Status::ok();
}

}  // namespace

KernelDType kernelType(DType dtype) {
    switch (dtype) {
        case DType::kFloat16:
            return KernelDType::kFloat16;
        case DType::kBFloat16:
            return KernelDType::kBfloat16;
        default:
            return KernelDType::kNone;
    }
}

std::string describe(KernelRequest const& request) {
    constexpr char const* kTypes[] = {"none", "float16", "bfloat16"};
    KernelInfo const& info = kKernelInfos[static_cast<int32_t>(request.kernel)];
    std::string text = std::string(info.name) + " (type " + kTypes[static_cast<int32_t>(request.dtype)];
    for (std::size_t i = 0; i < static_cast<std::size_t>(info.keyLength); ++i) {
        text += std::string(", ") + info.keyNames[i] + " " + std::to_string(request.key[i]);
    }
    return text + ")";
}

Status findVariant(KernelRequest const& request, int32_t sm, KernelVariant const** variant) {
    KernelVariant const* ptx = nullptr;
    for (std::size_t i = 0; i < kNumKernelVariants; ++i) {
        KernelVariant const& row = kKernelVariants[i];
        if (!(KernelRequest{row.kernel, row.dtype, row.key} == request)) {
            continue;
        }
        if (!row.ptx && row.sm == sm) {
            *variant = &row;
            return Status::ok();
        }
        if (row.ptx && row.sm <= sm && (ptx == nullptr || row.sm > ptx->sm)) {
            ptx = &row;
        }
    }
    *variant = ptx;
    return ptx != nullptr ? Status::ok()
                          : Status::error("the plugin library has no kernel " + describe(request) + " for sm_" +
                                          std::to_string(sm));
}

int32_t compiledValue(KernelRequest const& request, std::size_t keyIndex, int64_t wanted) {
    int32_t best = 0;
    KernelRequest open = request;
    for (std::size_t i = 0; i < kNumKernelVariants; ++i) {
        KernelVariant const& row = kKernelVariants[i];
        if (row.kernel != request.kernel || row.dtype != request.dtype) {
            continue;
        }
        int32_t const value = row.key[keyIndex];
        open.key[keyIndex] = value;
        if (open.key != row.key) {
            continue;
        }
        bool const holds = value >= wanted;
        bool const bestHolds = best >= wanted && best != 0;
        if (best == 0 || (holds ? (!bestHolds || value < best) : (!bestHolds && value > best))) {
            best = value;
        }
    }
    return best;
}

Status prepareKernel(KernelRequest const& request) {
    CudaDriver const* driver = nullptr;
    HSPEC_TRT_RETURN_IF_ERROR(CudaDriver::open(&driver));
    LoadedKernel loaded;
    return obtain(*driver, request, &loaded);
}

Status launchKernel(KernelRequest const& request, Grid const& grid, void** params, CUstream stream) {
    CudaDriver const* driver = nullptr;
    HSPEC_TRT_RETURN_IF_ERROR(CudaDriver::open(&driver));
    if (grid.x < 1 || grid.x > std::numeric_limits<int32_t>::max() || grid.y < 1 || grid.y > kMaxGridYZ || grid.z < 1 ||
        grid.z > kMaxGridYZ) {
        return Status::error(describe(request) + ": no grid of " + std::to_string(grid.x) + " x " +
                             std::to_string(grid.y) + " x " + std::to_string(grid.z));
    }
    LoadedKernel loaded;
    HSPEC_TRT_RETURN_IF_ERROR(obtain(*driver, request, &loaded));
    CUresult const result = driver->launchKernel(
        reinterpret_cast<CUfunction>(loaded.kernel), static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
        static_cast<unsigned>(grid.z), loaded.threads, 1, 1, loaded.sharedBytes, stream, params, nullptr);
    return result == CUDA_SUCCESS ? Status::ok() : driver->check(result, "cuLaunchKernel").within(describe(request));
}

}  // namespace hspec_trt
