// SPDX-License-Identifier: Apache-2.0
// What the two attention launchers share.
#pragma once

#include "core/geometry.h"
#include "core/kernel_store.h"

namespace hspec_trt {

struct HeadSizes {
    int32_t numHeads;
    int32_t numKvHeads;
    int32_t headDim;
    int32_t pageSize;
    int32_t window;
};

inline Status checkHeads(HeadSizes const& sizes) {
    if (sizes.numKvHeads < 1 || sizes.numHeads < 1 || sizes.numHeads % sizes.numKvHeads != 0) {
        return Status::error("num_heads " + std::to_string(sizes.numHeads) + " is not a multiple of num_kv_heads " +
                             std::to_string(sizes.numKvHeads));
    }
    if (sizes.numHeads / sizes.numKvHeads > kPrefillTile) {
        return Status::error("num_heads / num_kv_heads is above " + std::to_string(kPrefillTile));
    }
    if (sizes.headDim < 1 || sizes.pageSize < 1 || sizes.window < 0) {
        return Status::error("head_dim and page_size must be at least 1, window at least 0");
    }
    return Status::ok();
}

// numSplits on the device of the calling thread.
inline Status splitsOnDevice(int64_t rows, int64_t numKvHeads, int64_t longest, int64_t* splits) {
    CudaDriver const* driver = nullptr;
    DeviceInfo device;
    HSPEC_TRT_RETURN_IF_ERROR(CudaDriver::open(&driver));
    HSPEC_TRT_RETURN_IF_ERROR(driver->currentDevice(&device));
    *splits = numSplits(rows, numKvHeads, longest, device.multiprocessors);
    return Status::ok();
}

}  // namespace hspec_trt
