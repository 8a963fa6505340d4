// SPDX-License-Identifier: Apache-2.0
// What a step costs, learned while serving: a formula that holds for any number of rows, and corrections to it
// (hspec_trt/runtime/step_costs.py). The formula carries what was measured at some numbers of rows and drafts over to
// all others; where a machine does not follow it, the corrections of the numbers in question say by how much.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace hspec_trt {

inline constexpr std::size_t kNumStepFeatures = 5;
using StepFeatures = std::array<double, kNumStepFeatures>;

// What the cost of a step depends on.
struct StepSize {
    int32_t rows;     // decode rows
    int32_t drafts;   // that they carry together
    int32_t drafted;  // rows that are drafted for
    int32_t promptTokens;

    // What the formula multiplies: tokens, prompt tokens, rows of the drafter, its pass, and the step.
    StepFeatures features() const;
};

// Seconds of a step as a sum of costs, none below 0, with the smallest relative errors over the last steps.
class CostFormula {
  public:
    // The expected cost; 0 before the first step was observed.
    double seconds(StepFeatures const& features) const;
    // Note a step. All of the first ones lead to a new fit, later every eighth.
    void observe(StepSize const& step, double seconds);

  private:
    // Least squares; of costs below 0 the lowest is left out until none is.
    void fit();

    StepFeatures costs_{};
    StepFeatures targets_{};
    std::array<StepFeatures, kNumStepFeatures> products_{};
    int64_t steps_ = 0;
};

// Mean cost of steps of one kind, and their mean features; old ones fade out.
class MeasuredCost {
  public:
    void add(StepSize const& step, double seconds);
    // What the formula's result must be multiplied with; the formula itself counts as one measurement.
    double correction(CostFormula const& formula) const;

  private:
    int64_t times_ = 0;
    double seconds_ = 0.0;
    StepFeatures features_{};
};

// Cost of decode steps by the drafts that each row carries.
class StepCosts {
  public:
    // numDrafts: G. hasDrafter: whether steps that carry drafts also draft.
    StepCosts(int32_t numDrafts, bool hasDrafter) : numDrafts_(numDrafts), hasDrafter_(hasDrafter) {}

    // Note a step that ran.
    void observe(StepSize const& step, double seconds);
    // Seconds of a step of this many decode rows with k = 0..G drafts each. Corrections between those known lie on
    // straight lines.
    std::vector<double> curve(int32_t rows) const;

  private:
    StepSize stepOf(int32_t rows, int32_t k) const;
    // [G + 1], 1 where nothing is known.
    std::vector<double> corrections(int32_t rows) const;

    int32_t numDrafts_;
    bool hasDrafter_;
    CostFormula formula_;
    std::map<std::pair<int32_t, int32_t>, MeasuredCost> measured_;  // by class of rows and k
};

}  // namespace hspec_trt
