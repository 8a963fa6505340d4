// SPDX-License-Identifier: Apache-2.0
// Starts the next decode step before the last one was read, where all that it needs is on the device already
// (hspec_trt/runtime/lookahead.py). What an answer keeps is decided when a step is read, as ever: rows that ended
// meanwhile are dropped from the step that went ahead. It owns when that is allowed.
#pragma once

#include <cstdint>
#include <vector>

#include "hspec_trt/runtime/request.h"
#include "scheduler.h"

namespace hspec_trt {

class Lookahead {
  public:
    Lookahead(StepEngine& engine, Scheduler& scheduler) : engine_(engine), scheduler_(scheduler) {}

    // Make the step that went ahead the one to finish; false where there is none with a row that is still there.
    bool take();
    // Its rows that are still there.
    std::vector<PlanRow> const& plan() const { return taken_.plan; }
    // Leave the outputs of these rows.
    void keepRows(StepOutputs& outputs) const;

    // Whether every row of a step that was launched will carry all G drafts in the next one, whatever is accepted now:
    // nothing waits for a row, every running row (and no other) is in the step and was drafted for by the drafter
    // alone, and neither its length nor the drafter's positions come within reach.
    bool canFollow(std::vector<PlanRow> const& plan, bool isTaken) const;
    // Start the step after one that `canFollow`; false, and nothing started, where there are too few pages.
    bool follow(std::vector<PlanRow> const& plan);
    // Forget the step that went ahead.
    void drop() { ahead_.plan.clear(); }

  private:
    struct Ahead {
        std::vector<PlanRow> plan;
        std::vector<RequestId> requests;  // of its rows
        std::vector<std::size_t> kept;    // of all that the engine runs, the rows that are still there
        bool isWhole = true;              // those are all
    };

    StepEngine& engine_;
    Scheduler& scheduler_;
    Ahead ahead_;
    Ahead taken_;
    std::vector<int32_t> mostContext_;
    std::vector<int32_t> ends_;
    std::vector<int32_t> pageTable_;
};

}  // namespace hspec_trt
