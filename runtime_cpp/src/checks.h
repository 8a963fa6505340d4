// SPDX-License-Identifier: Apache-2.0
// Checks one request against an engine before it is admitted, and reports all faults of its options together
// (hspec_trt/runtime/checks.py). Whether there is room now is the scheduler's business.
#pragma once

#include <cstdint>
#include <limits>

#include "hspec_trt/runtime/request.h"
#include "hspec_trt/runtime/step.h"

namespace hspec_trt {

constexpr int64_t kMaxSeed = std::numeric_limits<int64_t>::max();  // the largest seed

// Throws Error R106, R201 to R220 with every fault of the options.
void checkParams(Request const& request, Limits const& limits);

// Throws Error R101 (too long), R102 (empty), R103 (outside the vocabulary).
// longest: tokens that one request may reach: maxSeqLen, or less where the page pool is smaller.
void checkPrompt(Request const& request, Limits const& limits, int32_t longest);

}  // namespace hspec_trt
