// SPDX-License-Identifier: Apache-2.0
// Launches a step: bound and run, or, for a decode shape that came before, as one recorded CUDA graph. A decode shape
// has a context of its own (one for each of two page buffers), because a graph lasts only as long as its context's
// bindings stay. As hspec_trt/runtime/trt/launcher.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "trt/buckets.h"
#include "trt/cuda.h"
#include "trt/plan.h"
#include "trt/pools.h"
#include "trt/tensors.h"

namespace hspec_trt::trt {

// A block of arrays on the device.
struct Block {
    Layout const& layout;
    CUdeviceptr address;
};

// How steps were launched so far.
struct LaunchCounts {
    int64_t bound = 0;
    int64_t recorded = 0;
    int64_t replayed = 0;
    int64_t notCapturable = 0;  // those of `bound` that TensorRT refuses to record
};

class Launcher {
  public:
    Launcher(Plan& plan, Cuda const& cuda, PagePools& pools, bool useGraphs);
    ~Launcher();

    // Start a step, in the stream's order; afterwards the pools that it wrote are those to read. Throws CudaError,
    // PlanError.
    void launch(StepShape const& shape, Block const& inputs, Block const& outputs);
    // Drop recorded launches: their memory goes away, and other pages may come. Nothing may be running.
    void forgetAddresses();
    LaunchCounts const& counts() const { return counts_; }

  private:
    struct Decoder {
        std::unique_ptr<PlanContext> context;
        bool ran = false;      // once with as many pages, which TensorRT asks for before a launch is recorded
        bool refused = false;  // recording it failed; other shapes may still be recorded
        int64_t lastUse = 0;
        CUgraphExec graph = nullptr;
    };

    void launchDecode(StepShape const& shape, Block const& inputs, Block const& outputs);
    Decoder& decoder(StepShape const& shape);
    bool mayRecord(Decoder const& decoder);
    void bind(PlanContext& context, Block const& inputs, Block const& outputs) const;
    // Record the launch of what is bound; where that fails, this shape is not tried again.
    void record(Decoder& decoder);
    void drop(Decoder& decoder) const;
    std::unique_ptr<PlanContext> context(int32_t profile);

    Plan& plan_;
    Cuda const& cuda_;
    PagePools& pools_;
    bool useGraphs_;
    Memory scratch_;
    std::unique_ptr<PlanContext> mixed_;
    std::map<std::pair<StepShape, std::size_t>, Decoder> decoders_;  // by shape, and which page buffer is read
    int64_t uses_ = 0;
    LaunchCounts counts_;
};

}  // namespace hspec_trt::trt
