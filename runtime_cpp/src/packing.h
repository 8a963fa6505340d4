// SPDX-License-Identifier: Apache-2.0
// A plan's rows as the arrays of a step (hspec_trt/runtime/packing.py). Copies and index arithmetic only.
#pragma once

#include <vector>

#include "hspec_trt/runtime/step.h"
#include "scheduler.h"
#include "table.h"

namespace hspec_trt {

// Fill the inputs of a step but for its extras, without padding: N, T and K are what the rows need, but K is at
// least 1. Row r runs tokens(slot)[context : context + queryLen]; its drafts lie in the table right after its tokens,
// and there is always one place more. What lies there is a known token exactly where a row is in mid-prefill.
void pack(std::vector<PlanRow> const& plan, SlotTable const& table, StepInputs& inputs);

}  // namespace hspec_trt
