// SPDX-License-Identifier: Apache-2.0
// Decode steps come in a few shapes, so that each shape's CUDA graph is recorded once and used again. As
// hspec_trt/runtime/trt/buckets.py.
#pragma once

#include <array>
#include <cstdint>

#include "hspec_trt/runtime/step.h"

namespace hspec_trt::trt {

// The sizes of one step, by the contract's names, and whether it is a decode bucket.
struct StepShape {
    int64_t R = 0;
    int64_t N = 0;
    int64_t T = 0;
    int64_t K = 0;
    int64_t D = 0;
    int64_t M = 0;
    bool decode = false;

    bool operator<(StepShape const& other) const { return sizes() < other.sizes(); }

  private:
    std::array<int64_t, 6> sizes() const { return {R, N, T, K, D, M}; }
};

// The shape that a step is padded to. Rows of at most G + 1 tokens make a decode step: R and M go up to a power of two,
// T to 1 or G + 1, K and N to R whole rows, D to 0 or R. Other steps keep their sizes but for M, which comes in whole
// blocks of keys, and the least sizes.
StepShape shapeFor(StepInputs const& inputs, Limits const& limits);

}  // namespace hspec_trt::trt
