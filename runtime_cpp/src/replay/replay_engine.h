// SPDX-License-Identifier: Apache-2.0
// The engine of hspec_trt/runtime/replay.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "replay/trace.h"

namespace hspec_trt {

class ReplayEngine : public StepEngine {
  public:
    explicit ReplayEngine(std::shared_ptr<Trace const> trace);

    Limits const& limits() const override { return limits_; }
    int32_t numPages() const override { return numPages_; }
    void launch(StepInputs const& inputs) override;
    void finish(StepOutputs& outputs) override;
    bool canFollow() const override { return isFollowable_; }
    void follow(std::vector<int32_t> const& pageTable, int32_t pagesPerRow,
                std::vector<int32_t> const& mostContext) override;
    void drop() override;
    void scrub(std::vector<int32_t> const& pages) override { scrubs_.emplace_back(step_, pages); }

    // Steps that were asked for so far.
    std::size_t numSteps() const { return step_; }
    // Step count and pages of every scrub.
    std::vector<std::pair<std::size_t, std::vector<int32_t>>> const& scrubs() const { return scrubs_; }
    // How the first step that differed did; empty where none has.
    std::string const& firstDifference() const { return firstDifference_; }

  private:
    // Elements of each array that the steps so far have taken, in the units of StepSizes.
    struct Place {
        std::size_t rows = 0, cumulative = 0, tokens = 0, slots = 0, logitRows = 0, draftRows = 0, pages = 0;
        std::size_t edits = 0, masks = 0, tops = 0;

        void add(StepSizes const& sizes);
    };

    std::string difference(StepInputs const& inputs) const;
    std::string followDifference(std::vector<int32_t> const& pageTable, int32_t pagesPerRow,
                                 std::vector<int32_t> const& mostContext) const;
    // Go on to the next step, unless the one asked for differs from the recorded one or fails.
    void enter(std::string const& difference);

    std::shared_ptr<Trace const> trace_;
    Limits limits_;
    int32_t numPages_;
    std::set<std::size_t> failedSteps_;
    std::set<std::size_t> followedSteps_;
    std::size_t step_ = 0;
    std::size_t finished_ = 0;
    bool isFollowable_ = false;
    Place inputPlace_;
    Place outputPlace_;  // failed steps have no outputs
    std::vector<std::pair<std::size_t, std::vector<int32_t>>> scrubs_;
    std::string firstDifference_;
};

}  // namespace hspec_trt
