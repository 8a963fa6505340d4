// SPDX-License-Identifier: Apache-2.0
#include "trt/buckets.h"

#include <algorithm>

#include "step_checks.h"

namespace hspec_trt::trt {
namespace {

// Least tokens and rows of logits: a matrix product of one row may take another path, with other rounding.
constexpr int64_t kLeast = 2;
// Keys that attention runs over come in whole blocks of this many tokens.
constexpr int64_t kKeyBlock = 64;

int64_t powerOfTwo(int64_t count) {
    int64_t power = 1;
    while (power < count) {
        power *= 2;
    }
    return power;
}

}  // namespace

StepShape shapeFor(StepInputs const& inputs, Limits const& limits) {
    int64_t const width = limits.numDrafts + 1;
    int64_t const mostTokens = limits.maxTokens;
    int64_t const mostLogits = limits.maxRows * width;
    int64_t const mostPages = limits.maxPagesPerRow();
    int64_t const leastPages = std::max<int64_t>(kKeyBlock / limits.pageSize, 1);
    auto const drafts = static_cast<int64_t>(inputs.draftRows.size());
    StepShape shape;
    if (inputs.longestQuery <= width && !usesExtras(inputs.extras)) {
        shape.decode = true;
        shape.R = std::min<int64_t>(powerOfTwo(inputs.numRows), limits.maxRows);
        int64_t const rowTokens = inputs.longestQuery == 1 ? 1 : width;
        shape.N = std::max(shape.R * rowTokens, std::min(kLeast, mostLogits));
        shape.K = shape.N;
        shape.T = std::max(rowTokens, std::min(kLeast, width));
        shape.D = drafts > 0 ? shape.R : 0;
        shape.M = std::min(powerOfTwo(std::max<int64_t>(inputs.pagesPerRow, leastPages)), mostPages);
        return shape;
    }
    shape.R = inputs.numRows;
    shape.N = std::max<int64_t>(static_cast<int64_t>(inputs.inputIds.size()), std::min(kLeast, mostTokens));
    shape.T = std::max<int64_t>(inputs.longestQuery, std::min(kLeast, mostTokens));
    shape.K = std::max<int64_t>(static_cast<int64_t>(inputs.verifyRows.size()), std::min(kLeast, mostLogits));
    shape.D = drafts;
    shape.M = std::min((inputs.pagesPerRow + leastPages - 1) / leastPages * leastPages, mostPages);
    return shape;
}

}  // namespace hspec_trt::trt
