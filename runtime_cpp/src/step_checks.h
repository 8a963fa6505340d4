// SPDX-License-Identifier: Apache-2.0
// Checks the arrays of a step against the contract before a backend reads them (hspec_trt/runtime/step_checks.py): a
// wrong index would be an out-of-bounds access in a kernel, so every engine calls it.
#pragma once

#include <cstdint>

#include "hspec_trt/runtime/step.h"

namespace hspec_trt {

// Throws Error R310 with every fault of the step.
void checkStep(StepInputs const& inputs, Limits const& limits, int32_t numPages);

// Whether a step has inputs of extensions.
bool usesExtras(StepExtras const& extras);
// Whether the step after one with these inputs can start from its outputs, in an engine with feedback: it drafts for
// every row, in order, and has no inputs of other extensions.
bool canBeFollowed(StepInputs const& inputs);

}  // namespace hspec_trt
