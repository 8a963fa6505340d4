// SPDX-License-Identifier: Apache-2.0
// A step engine on TensorRT: one copy in, one launch and one copy out a step, all on one stream that nobody waits for
// before `finish`. As hspec_trt/runtime/trt/session.py.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hspec_trt/runtime/step.h"
#include "trt/cuda.h"
#include "trt/launcher.h"
#include "trt/plan.h"
#include "trt/pools.h"
#include "trt/tensors.h"

namespace hspec_trt::trt {

// The contract's tensors of a plan.
struct PlanTensors {
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    std::vector<Pool> pools;

    // Throws Error L031 where the plan's tensors or profiles are not the contract's.
    static PlanTensors of(Plan const& plan, Limits const& limits, std::string const& where);
};

class TrtEngine final : public StepEngine {
  public:
    // `aliased`: pages are updated in place, as plugin kernels do. Throws CudaError, PlanError.
    TrtEngine(std::unique_ptr<Cuda> cuda, std::unique_ptr<Plan> plan, PlanTensors tensors, Limits const& limits,
              bool aliased, bool useGraphs);
    ~TrtEngine() override;

    Limits const& limits() const override { return limits_; }
    int32_t numPages() const override { return pools_.numPages(); }
    void launch(StepInputs const& inputs) override;
    void finish(StepOutputs& outputs) override;
    bool canFollow() const override;
    void follow(std::vector<int32_t> const& pageTable, int32_t pagesPerRow,
                std::vector<int32_t> const& mostContext) override;
    void drop() override;
    void scrub(std::vector<int32_t> const& pages) override;

    // Make zeroed pools of that many pages, in place of those there were. Throws CudaError.
    void allocate(int32_t numPages);
    Cuda const& cuda() const { return *cuda_; }
    LaunchCounts const& counts() const { return launcher_->counts(); }

  private:
    // Memory of one step on its way: nobody touches it until its event has passed.
    struct Flight {
        Memory inputs;
        Memory outputs;
        CUevent event = nullptr;
        Layout layout;  // of the outputs
        std::size_t rows = 0;
        std::size_t drafts = 0;
        std::chrono::steady_clock::time_point started;
    };
    static constexpr std::size_t kInFlight = 2;  // the step that is waited for, and the one that follows it

    void start(StepInputs const& inputs, bool fedBack);
    void reserve(Flight& flight, std::size_t bytes);
    void feedBack(Layout const& source, Layout const& target, StepInputs const& inputs) const;
    std::size_t mostOutputBytes() const;

    std::unique_ptr<Cuda> cuda_;
    std::unique_ptr<Plan> plan_;
    PlanTensors tensors_;
    Limits limits_;
    bool feedback_;
    PagePools pools_;
    Memory inputs_;
    Memory outputs_;
    std::array<Flight, kInFlight> flights_;
    std::unique_ptr<Launcher> launcher_;
    std::size_t launched_ = 0;
    std::size_t finished_ = 0;
    std::chrono::steady_clock::time_point read_{};  // when the last step was finished
    // The last step, as far as the next one may start from it: its inputs without padding, and whether it may.
    StepInputs last_;
    bool followable_ = false;
};

}  // namespace hspec_trt::trt
