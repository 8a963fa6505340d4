// SPDX-License-Identifier: Apache-2.0
// What requests want of single rows of logits in a step, put together from all rows (hspec_trt/runtime/shaping.py):
// edits, masks, lists of tokens. Only rows whose request uses such an option are looked at.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "commit.h"
#include "hspec_trt/runtime/step.h"
#include "scheduler.h"
#include "table.h"

namespace hspec_trt {

// Beyond the extras of one step: whose lists of tokens its outputs will hold, and whose grammar gave up.
struct ShapedStep {
    std::vector<std::pair<std::size_t, std::size_t>> topOwners;  // row of the plan, its first line in the outputs
    std::vector<std::pair<Sequence*, Error>> failed;
};

// Collect the extras of a plan's rows, in place of those there were. Asking again for the same rows is harmless.
ShapedStep shapeStep(std::vector<PlanRow> const& plan, SlotTable& table, StepExtras& extras);

// Note the lists of tokens of the positions that were kept.
void takeTops(ShapedStep const& shaped, std::vector<PlanRow> const& plan, SlotTable& table, StepOutputs const& outputs,
              std::vector<Committed> const& committed);

}  // namespace hspec_trt
