// SPDX-License-Identifier: Apache-2.0
// How many drafts a step should carry, from what steps cost here and how many drafts are accepted
// (hspec_trt/runtime/drafting.py). For k drafts a row, a step emits E(k) = 1 + sum_j P(the first j drafts are accepted)
// tokens a row and takes C(k) seconds; the policy takes the k with the largest E(k) / C(k), k = 0 without a drafter
// pass included. Both are measured while serving: acceptance per position here, costs in step_costs.h, each with old
// figures fading out.
#pragma once

#include <cstdint>
#include <vector>

#include "step_costs.h"

namespace hspec_trt {

// What rows with Drafting::kAuto do.
struct DraftChoice {
    int32_t verify;  // drafts of the last step that a row carries now, at most
    bool draft;      // whether this step drafts for the next one
};

class DraftPolicy {
  public:
    // numDrafts: G. Without a drafter only the width of look-up drafts is chosen.
    DraftPolicy(int32_t numDrafts, bool hasDrafter);

    // P(the first j drafts are accepted) for j = 1..G, from running conditional shares.
    std::vector<double> acceptance() const;
    // The choice for a step of `rows` decode rows.
    DraftChoice choose(int32_t rows);
    // Note what a step cost.
    void observeStep(StepSize const& step, double seconds);
    // Note the drafts of a step per position, [G] each.
    void observeAcceptance(std::vector<int64_t> const& offered, std::vector<int64_t> const& accepted);

  private:
    // Expected tokens of a row's step for k = 0..G.
    std::vector<double> emitted() const;
    int32_t probe(std::vector<double> const& emitted, std::vector<double> const& rates, int32_t best);

    int32_t numDrafts_;
    bool hasDrafter_;
    StepCosts costs_;
    int64_t stepsWith_ = 0;  // drafts
    int64_t stepsWithout_ = 0;
    std::vector<double> offered_;
    std::vector<double> accepted_;
    int32_t sinceProbe_ = 0;
    int32_t gap_ = 32;
    int32_t probeLeft_ = 0;
};

}  // namespace hspec_trt
