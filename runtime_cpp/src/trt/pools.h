// SPDX-License-Identifier: Apache-2.0
// The page pools on the device: one buffer each where pages are updated in place, else two that change places (without
// plugin kernels TensorRT computes the new pages into memory of their own). As hspec_trt/runtime/trt/pools.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trt/cuda.h"
#include "trt/plan.h"

namespace hspec_trt::trt {

// One pool of a plan.
struct Pool {
    std::string name;
    std::string outName;
    Shape pageShape;
    int64_t pageBytes;
};

class PagePools {
  public:
    PagePools(Cuda const& cuda, std::vector<Pool> pools, bool aliased);

    // Bytes of one page over all pools and buffers.
    int64_t pageBytes() const;
    // P, the null page included; 0 before `allocate`.
    int32_t numPages() const { return numPages_; }
    // Make zeroed buffers, in place of those there were; nothing may use these any more.
    void allocate(int32_t numPages);
    // Bind the pools that the next step reads and those that it writes.
    void bind(PlanContext& context) const;
    // Which buffer the next step reads; always 0 where pages are updated in place.
    std::size_t reading() const { return reading_; }
    // What was written is what is read next.
    void swap() { reading_ = (reading_ + 1) % copies_; }
    // Zero these pages, in the stream's order.
    void scrub(std::vector<int32_t> const& pages) const;

  private:
    Cuda const& cuda_;
    std::vector<Pool> pools_;
    std::size_t copies_;
    std::vector<std::vector<Memory>> buffers_;
    int32_t numPages_ = 0;
    std::size_t reading_ = 0;
};

}  // namespace hspec_trt::trt
