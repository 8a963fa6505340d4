// SPDX-License-Identifier: Apache-2.0
// From "this kernel with these constants" to compiled code on the current device, and its launch.
#pragma once

#include <cuda.h>

#include <array>
#include <initializer_list>
#include <string>

#include "core/cuda_driver.h"
#include "core/status.h"
#include "core/tensor.h"
#include "kernel_table.h"

namespace hspec_trt {

// A kernel with the constants of its key, as listed in kernel_table.h.
struct KernelRequest {
    KernelId kernel = KernelId{};
    KernelDType dtype = KernelDType::kNone;
    std::array<int32_t, kMaxKey> key{};

    bool operator==(KernelRequest const& other) const {
        return kernel == other.kernel && dtype == other.dtype && key == other.key;
    }
};

// Args is the generated argument struct of the kernel; it fixes the length of the key.
template <typename Args>
KernelRequest request(KernelDType dtype, std::array<int32_t, static_cast<std::size_t>(Args::kKeyLength)> const& key) {
    KernelRequest made{Args::kId, dtype, {}};
    for (std::size_t i = 0; i < key.size(); ++i) {
        made.key[i] = key[i];
    }
    return made;
}

KernelDType kernelType(DType dtype);

// Kernel, type and constants in words.
std::string describe(KernelRequest const& request);

struct Grid {
    int64_t x = 1;
    int64_t y = 1;
    int64_t z = 1;
};

// The variant that runs on a device of this SM: its own code, else the newest PTX that is not above it.
// A failure names the kernel, the constants and the SM.
Status findVariant(KernelRequest const& request, int32_t sm, KernelVariant const** variant);

// Among the compiled values of one constant (the others as in the request, on any SM): the least that is not below
// `wanted`, else the greatest; 0 where none is compiled.
int32_t compiledValue(KernelRequest const& request, std::size_t keyIndex, int64_t wanted);

// Load the code into the current context, under lazy module loading too, so that a later launch there loads and
// allocates nothing.
Status prepareKernel(KernelRequest const& request);

// Grid extents must be at least 1. `params` as of cuLaunchKernel.
Status launchKernel(KernelRequest const& request, Grid const& grid, void** params, CUstream stream);

template <typename Args>
Status launchKernel(KernelRequest const& request, Grid const& grid, Args args, CUstream stream) {
    auto params = args.params();
    return launchKernel(request, grid, params.data(), stream);
}

}  // namespace hspec_trt
